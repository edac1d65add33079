/* penstock_train: steps over data, their learning rates, their checkpoints. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint.h"
#include "stages/data.h"
#include "stages/tokenizer.h"

#define KEEP 2

/* Beyond it, 1 - beta has few bits of a float left, or none. */
#define MAX_BETA 0.999999

enum decay { DECAY_COSINE, DECAY_LINEAR, DECAY_NONE };

struct run {
    const struct penstock_train *work;
    enum decay decay;
    struct training training;
    struct tokenizer *tokenizer;
    struct data *data;
    struct checkpoint_dir dir;
    struct checkpoint_state state;
    char *source;    /* the checkpoint to go on from, or NULL */
    long made;       /* steps of this run */
    long saved;      /* step of the last complete checkpoint; -1: none */
    int save_error;  /* of the last checkpoint */
    double held_out; /* the newest loss of that part, NAN: none */

    struct penstock_prompt *sequences; /* (batch) of a step */
    struct engine_times (
        *times)[ENGINE_KINDS]; /* (stages) of all steps but the first, which warms up */
    const char **lanes;        /* (lanes) */
    size_t *lane_bytes, *lane_bytes_predicted; /* (lanes) */
};

/* ---- What is asked for ------------------------------------------------------------------------- */

static int refuse(const char *what)
{
    log_error("%s", what);
    return -EINVAL;
}

/* False for what is no number. */
static bool within(double x, double most)
{
    return x >= 0 && x <= most;
}

static int check(const struct penstock_train *w)
{
    if (!w->data)
        return refuse("no data: give --data FILE");
    if (w->batch < 1 || w->positions < 1 || w->steps < 1)
        return refuse("batch, sequence length and steps begin at 1");
    if (!within(w->beta1, MAX_BETA) || !within(w->beta2, MAX_BETA))
        return refuse("AdamW's betas are from 0 to 0.999999");
    if (!within(w->lr, FLT_MAX) || !within(w->min_lr, w->lr) || w->warmup < 0)
        return refuse("the learning rate falls from lr to min-lr, which is not above it");
    if (!(w->eps > 0) || !within(w->eps, FLT_MAX) || !within(w->weight_decay, FLT_MAX) ||
        !within(w->clip, FLT_MAX))
        return refuse("AdamW's eps is above 0; weight decay and clip are not below");
    return 0;
}

static int parse_decay(enum decay *d, const char *name)
{
    static const char *const names[] = {
        [DECAY_COSINE] = "cosine", [DECAY_LINEAR] = "linear", [DECAY_NONE] = "none"};

    *d = DECAY_COSINE;
    for (size_t i = 0; name && i < ARRAY_LEN(names); i++)
        if (!strcmp(name, names[i])) {
            *d = i;
            return 0;
        }
    if (!name)
        return 0;
    log_error("--decay %s: expected cosine, linear or none", name);
    return -EINVAL;
}

/* Of step s, from 0: a line from lr / warmup up to lr, then the decay, which reaches min_lr behind the last step. */
static double learning_rate(const struct run *r, long s)
{
    const struct penstock_train *w = r->work;

    if (s < w->warmup)
        return w->lr * (double)(s + 1) / (double)w->warmup;
    double done = (double)(s - w->warmup) / (double)(w->steps - w->warmup);
    double left = r->decay == DECAY_COSINE   ? 0.5 * (1 + cos(M_PI * done))
                  : r->decay == DECAY_LINEAR ? 1 - done
                                             : 1;
    return w->min_lr + (w->lr - w->min_lr) * left;
}

/* ---- Opening ----------------------------------------------------------------------------------- */

/* Where the run begins, and where it saves. */
static int open_folders(struct run *r)
{
    const struct penstock_train *w = r->work;
    int err = 0;

    if (w->resume)
        err = checkpoint_find(&r->source, w->resume);
    if (!err && r->source)
        err = checkpoint_state_read(&r->state, r->source);
    if (!err && r->source)
        r->saved = r->state.step;
    if (!err && w->seed)
        r->state.seed = w->seed;
    if (!err && w->save)
        err = checkpoint_dir_open(&r->dir, w->save, w->keep > 0 ? w->keep : KEEP,
                                  r->source, r->state.step);
    return err;
}

static int open_data(struct run *r, const struct penstock_options *o)
{
    const struct penstock_train *w = r->work;
    const struct model *m = r->training.machine.model;
    int err = m->random ? 0 : tokenizer_open(&r->tokenizer, m);
    uint64_t before = r->state.fingerprint;

    if (!err)
        err = data_open(&r->data, &(struct data_config){
                                      .path = w->data,
                                      .tokenizer = r->tokenizer,
                                      .eos = m->config.n_eos ? m->config.eos[0] : -1,
                                      .bos = true,
                                      .vocabulary = m->config.V,
                                      .positions = w->positions,
                                      .pack = !w->unpacked,
                                      .shuffle = true,
                                      .seed = r->state.seed,
                                      .held_out = w->held_out,
                                      .progress = o->progress,
                                      .user = o->user,
                                  });
    if (err)
        return err;
    r->state.fingerprint = data_fingerprint(r->data);
    if (!r->source || r->state.fingerprint == before)
        return 0;
    log_error("%s: not the data that %s was trained on: the file, the seed, the sequence "
              "length, the held-out share and packing must be as they were",
              w->data, r->source);
    return -EINVAL;
}

static int take_memory(struct run *r)
{
    int n = r->training.plan.lanes;

    r->sequences = calloc(r->work->batch, sizeof(*r->sequences));
    r->times = calloc(r->training.plan.stages, sizeof(*r->times));
    r->lanes = calloc(n, sizeof(*r->lanes));
    r->lane_bytes = calloc(n, sizeof(*r->lane_bytes));
    r->lane_bytes_predicted = calloc(n, sizeof(*r->lane_bytes_predicted));
    return r->sequences && r->times && r->lanes && r->lane_bytes &&
                   r->lane_bytes_predicted
               ? 0
               : log_no_memory("training");
}

static int open_run(struct run *r, const struct penstock_options *options,
                    const struct penstock_schedule *schedule)
{
    struct penstock_options o = *options;
    int err = check(r->work);

    if (!err)
        err = parse_decay(&r->decay, r->work->decay);
    if (!err)
        err = open_folders(r);
    if (!err && r->source) {
        o.model = r->source;
        o.shape = NULL;
    }
    if (!err)
        err =
            training_open(&r->training, &o, schedule, r->work->batch, r->work->positions);
    if (!err)
        err = open_data(r, &o);
    if (!err)
        err = take_memory(r);
    if (!err)
        err = training_start(&r->training, &o);
    if (!err && r->source)
        err = checkpoint_read(&r->training, r->source);
    if (!err && r->source)
        err = trainer_share(r->training.trainer);
    return err;
}

static void close_run(struct run *r)
{
    training_close(&r->training);
    data_close(r->data);
    tokenizer_close(r->tokenizer);
    free(r->source);
    free(r->sequences);
    free(r->times);
    free(r->lanes);
    free(r->lane_bytes);
    free(r->lane_bytes_predicted);
}

/* ---- Steps ------------------------------------------------------------------------------------- */

static void get_sequences(struct run *r)
{
    for (int i = 0; i < r->work->batch; i++)
        data_get(r->data, r->state.sequences + i, &r->sequences[i].ids,
                 &r->sequences[i].n);
}

static int update(struct run *r, const struct penstock_train_step *s)
{
    const struct penstock_train *w = r->work;
    double clip = w->clip > 0 ? w->clip / (s->grad_norm + 1e-6) : 1;
    struct kernel_adamw p = {
        .lr = (float)s->lr,
        .beta1 = (float)w->beta1,
        .beta2 = (float)w->beta2,
        .eps = (float)w->eps,
        .weight_decay = (float)w->weight_decay,
        .correction1 = (float)(1 - pow(w->beta1, (double)s->step)),
        .correction2 = (float)(1 - pow(w->beta2, (double)s->step)),
        .scale = (float)(clip < 1 ? clip : 1),
    };
    return trainer_adamw(r->training.trainer, &p);
}

/* The plan's time and bubble, measured and predicted. */
static int compare(struct run *r, struct penstock_train_step *s)
{
    const struct engine *e = &r->training.trainer->engine;
    int stages = r->training.plan.stages;

    if (r->made == 1) /* the first step's times stand for themselves alone */
        memset(r->times, 0, stages * sizeof(*r->times));
    for (int i = 0; i < e->n_stages; i++) /* two copies of a stage cost the same */
        for (int k = 0; k < ENGINE_KINDS; k++) {
            r->times[i % stages][k].seconds += e->times[i][k].seconds;
            r->times[i % stages][k].n += e->times[i][k].n;
        }
    s->bubble = training_bubble(&r->training, &s->plan_s);
    return training_predict(&r->training, r->times, &s->bubble_predicted,
                            &s->plan_s_predicted);
}

static void tell_lanes(struct run *r, struct penstock_train_step *s)
{
    const struct training *t = &r->training;

    for (int l = 0; l < t->plan.lanes; l++) {
        const struct lane *lane = &t->machine.lanes.lanes[l];
        r->lanes[l] = lane->spec.name;
        r->lane_bytes[l] = lane_resident(lane);
        r->lane_bytes_predicted[l] = t->trainer->lane_bytes[l];
    }
    s->lanes = r->lanes;
    s->lane_bytes = r->lane_bytes;
    s->lane_bytes_predicted = r->lane_bytes_predicted;
    s->n_lanes = t->plan.lanes;
}

static int make_step(struct run *r, struct penstock_train_step *s)
{
    double begin = time_now();

    s->step = r->state.step + 1;
    s->lr = learning_rate(r, r->state.step);
    get_sequences(r);
    engine_reset_times(&r->training.trainer->engine);
    int err = training_step(&r->training, &s->loss, r->sequences, r->work->batch);
    if (!err)
        err = training_finish(&r->training, &s->grad_norm);
    if (!err)
        err = update(r, s);
    if (err)
        return err;
    size_t targets = 0;
    for (int i = 0; i < r->work->batch; i++)
        targets += r->sequences[i].n - 1;
    s->step_s = time_now() - begin;
    s->tokens_per_s = (double)targets / s->step_s;
    r->state.step++;
    r->state.sequences += r->work->batch;
    tell_lanes(r, s);
    err = compare(r, s);
    r->made++;
    return err;
}

/* The loss of the held-out part. */
static int evaluate(struct run *r)
{
    size_t n = data_held_out(r->data), all = 0;
    double loss = 0;
    int err = 0;

    for (size_t at = 0; at < n && !err;) {
        int count = 0;
        size_t targets;
        double sum;
        for (; count < r->work->batch && at < n; count++, at++)
            data_get_held_out(r->data, at, &r->sequences[count].ids,
                              &r->sequences[count].n);
        err = training_evaluate(&r->training, &sum, &targets, r->sequences, count);
        loss += err ? 0 : sum;
        all += err ? 0 : targets;
    }
    r->held_out = all ? loss / (double)all : NAN;
    return err;
}

/* A checkpoint that cannot be written costs itself alone: the last one stands, and the run goes on. */
static void save(struct run *r)
{
    r->save_error = checkpoint_write(&r->dir, &r->training, &r->state);
    if (r->save_error) {
        char at[64] = "there is none before it";
        if (r->saved >= 0)
            snprintf(at, sizeof(at), "the one of step %ld stands", r->saved);
        log_warn("no checkpoint of step %ld: %s", r->state.step, at);
        return;
    }
    r->saved = r->state.step;
    char *path = checkpoint_path(r->dir.path, r->saved);
    if (path && r->work->on_save)
        r->work->on_save(r->work->user, r->saved, path);
    free(path);
}

static bool is_due(long step, long every)
{
    return every > 0 && step % every == 0;
}

static int train(struct run *r)
{
    const struct penstock_train *w = r->work;
    bool end = r->state.step >= w->steps;
    int err = end ? 0 : evaluate(r);

    if (end)
        log_warn("step %ld of %ld: there is nothing left to train", r->state.step,
                 w->steps);
    while (!err && !end) {
        struct penstock_train_step s = {.steps = w->steps,
                                        .held_out_loss = NAN,
                                        .held_out_loss_before =
                                            r->made ? NAN : r->held_out};
        err = make_step(r, &s);
        if (err)
            break;
        end = r->state.step >= w->steps;
        if (end || is_due(s.step, w->eval_every)) {
            err = evaluate(r);
            s.held_out_loss = r->held_out;
        }
        if (!err && w->on_step && w->on_step(w->user, &s))
            end = true;
        if (!err && w->save && (end || is_due(s.step, w->save_every)))
            save(r);
    }
    return err ? err : r->save_error;
}

int penstock_train(const struct penstock_options *options,
                   const struct penstock_schedule *schedule,
                   const struct penstock_train *work)
{
    struct run r = {.work = work, .saved = -1, .held_out = NAN, .dir.lock = -1};
    int err = open_run(&r, options, schedule);

    if (!err)
        err = train(&r);
    checkpoint_dir_close(&r.dir);
    if (err != -ETIMEDOUT) /* else workers hang and may still use all of this */
        close_run(&r);
    return err;
}
