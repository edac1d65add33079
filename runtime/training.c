/* From options to a loaded trainer, and from sequences to its micro-batches. */
#include "runtime/training.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/list.h"
#include "schedules/simulate.h"
#include "stages/partition.h"

#define DEADLINE_S     600
#define MAX_DEADLINE_S 1e9

/* Rows of a micro-batch, so that what is counted in an int stays within it. */
#define MAX_ROWS ((size_t)1 << 24)

static bool is_file(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".csv");
}

static int read_plan(struct sched_plan *plan, const struct penstock_schedule *s,
                     struct sched_error *why)
{
    if (s->chunks)
        return sched_fail(why, -EINVAL, -1, -1, -1,
                          "a plan from a file has its own stages per lane: leave out -V");
    FILE *f = fopen(s->name, "r");
    if (!f) {
        log_error("--schedule %s: %s", s->name, strerror(errno));
        return -errno;
    }
    int err = sched_csv_read(plan, f, s->micro_batches, why);
    fclose(f);
    if (!err && (err = sched_check(plan, 0, why)))
        sched_plan_fini(plan);
    return err;
}

/* A plan for this many lanes, by name or from a file. */
static int make_plan(struct training *t, const struct penstock_schedule *s)
{
    int lanes = t->machine.n_specs,
        most = (int)(t->machine.model->config.L / (size_t)lanes);
    int usual = lanes < t->sequences ? lanes : t->sequences;
    const char *name = s->name ? s->name : "1f1b";
    const struct schedule *known = sched_find(name);
    struct sched_error why = {.text = ""};
    struct sched_shape shape = {.lanes = lanes,
                                .micro_batches =
                                    s->micro_batches ? s->micro_batches : usual,
                                .chunks = s->chunks,
                                .one_copy = true}; /* auto: weights cost memory */
    int err;

    /* auto takes as many chunks as pay, up to four: not more than the model has layers for. */
    if (!strcmp(name, "auto") && !s->chunks)
        shape.chunks = most < 1 ? 1 : most < 4 ? most : 4;
    err = is_file(name) ? read_plan(&t->plan, s, &why)
          : known       ? sched_make(&t->plan, known, &shape, &why)
                        : -ENOENT;
    if (err == -ENOENT && !is_file(name))
        log_error("--schedule %s: no such schedule: see penstock schedule list", name);
    else if (err && why.text[0])
        log_error("--schedule %s: %s", name, why.text);
    if (!err && sched_plan_late(&t->plan))
        err = log_no_memory("the plan");
    return err;
}

/* What training asks of a plan beyond being a right one. */
static int check_plan(const struct training *t, const char *name)
{
    const struct sched_plan *p = &t->plan;
    const char *why = NULL;
    bool trains = false;

    for (int l = 0; l < p->lanes; l++)
        for (size_t i = 0; i < p->lane[l].n; i++)
            trains |=
                p->lane[l].ops[i].kind == SCHED_B || p->lane[l].ops[i].kind == SCHED_I;
    if (!trains)
        why = "it has no backward ops";
    else if (p->lanes > t->machine.n_specs)
        why = "it has more lanes than --devices names";
    else if ((size_t)p->stages > t->machine.model->config.L)
        why = "it has more stages than the model has layers";
    if (why)
        log_error("--schedule %s: %s", name ? name : "1f1b", why);
    return why ? -EINVAL : 0;
}

static int cut(struct training *t, const struct penstock_options *o)
{
    const struct model_config *c = &t->machine.model->config;
    struct partition_work work = {1, 1, t->positions / 2.0};
    double layer, embed, head, *speed = calloc(t->plan.stages, sizeof(*speed));
    int n = t->plan.stages, err = 0;

    t->ranges = calloc(n, sizeof(*t->ranges));
    if (!speed || !t->ranges)
        err = log_no_memory("the stages");
    for (int i = 0; i < n * t->plan.copies && !err; i++) {
        double lane = machine_speed(&t->machine.lanes.lanes[t->plan.stage_lane[i]]);
        if (i < n || lane < speed[i % n])
            speed[i % n] = lane;
    }
    partition_costs(c, &work, &layer, &embed, &head);
    if (err)
        ;
    else if (o->split)
        err = partition_by_ratio(t->ranges, n, c->L, o->split);
    else if (o->layers)
        err = partition_exact(t->ranges, n, c->L, o->layers);
    else
        err = partition_by_cost(t->ranges, n, c->L, layer, embed, head, speed);
    free(speed);
    return err;
}

/* Most sequences of a micro-batch. */
static int most_sequences(const struct training *t)
{
    int m = t->plan.micro_batches;
    return (t->sequences + m - 1) / m;
}

static size_t align8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Pack, loss and bad of a micro-batch. Runs on a lane's thread, so that the pages are near it. */
static int take_slab(void *arg)
{
    struct training *t = arg;
    size_t bytes = t->plan.micro_batches * t->batch_bytes;
    void *slab = NULL;
    int err = t->pinned ? device_host_alloc(&slab, bytes) : 0;
    if (!err && !t->pinned && !(slab = malloc(bytes)))
        err = log_no_memory("micro-batches");
    if (!err)
        memset(slab, 0, bytes);
    t->slab = slab;
    return err;
}

static int make_batches(struct training *t)
{
    int segs = most_sequences(t), rows = segs * t->positions, m = t->plan.micro_batches;

    for (int l = 0; l < t->machine.lanes.n; l++)
        t->pinned |= t->machine.lanes.lanes[l].spec.kind == LANE_CUDA;
    t->batch_bytes =
        align8((train_layout(rows, segs).total + rows + 1) * sizeof(int32_t));
    t->batches = calloc(m, sizeof(*t->batches));
    t->list = calloc(m, sizeof(*t->list));
    t->pairs = calloc(rows, sizeof(*t->pairs));
    if (!t->batches || !t->list || !t->pairs)
        return log_no_memory("micro-batches");
    for (int i = 0; i < m; i++)
        t->list[i] = &t->batches[i];
    return task_call(t->machine.lanes.lanes[0].worker, take_slab, t);
}

static int parse_recompute(enum recompute *r, const char *name)
{
    static const char *const names[] = {[RECOMPUTE_NONE] = "none",
                                        [RECOMPUTE_SELECTIVE] = "selective",
                                        [RECOMPUTE_LAYER] = "layer"};
    *r = RECOMPUTE_NONE;
    for (size_t i = 0; name && i < ARRAY_LEN(names); i++)
        if (!strcmp(name, names[i])) {
            *r = i;
            return 0;
        }
    if (!name)
        return 0;
    log_error("--recompute %s: expected none, layer or selective", name);
    return -EINVAL;
}

static int make_trainer(struct training *t, const struct penstock_options *o)
{
    return trainer_create(&t->trainer, &(struct trainer_config){
                                           .model = t->machine.model,
                                           .place = t->machine.place,
                                           .lanes = &t->machine.lanes,
                                           .plan = &t->plan,
                                           .ranges = t->ranges,
                                           .rows = most_sequences(t) * t->positions,
                                           .segs = most_sequences(t),
                                           .positions = t->positions,
                                           .recompute = t->recompute,
                                           .link = t->machine.link,
                                           .order = t->machine.order,
                                           .deadline = t->deadline,
                                           .progress = o->progress,
                                           .user = o->user,
                                       });
}

static int check_sizes(const struct training *t)
{
    size_t rows = (size_t)most_sequences(t) * t->positions;

    if ((size_t)t->positions > t->machine.model->config.max_positions) {
        log_error("sequences of %d positions are too long: the model has %zu",
                  t->positions, t->machine.model->config.max_positions);
        return -EINVAL;
    }
    if (t->plan.micro_batches > t->sequences) {
        log_error(
            "%d micro-batches cannot share %d sequences: every one needs at least one",
            t->plan.micro_batches, t->sequences);
        return -EINVAL;
    }
    if (rows > MAX_ROWS) {
        log_error("a micro-batch of %zu positions is too large: at most %zu; use more "
                  "micro-batches, or fewer or shorter sequences",
                  rows, MAX_ROWS);
        return -EINVAL;
    }
    return 0;
}

static int check_request(const struct penstock_options *o, double deadline, int positions)
{
    const char *strange = o->stages    ? "--stages"
                          : o->context ? "-c"
                          : o->ubatch  ? "--ubatch"
                                       : NULL;

    if (strange)
        log_error("%s is for inference: a schedule has its own stages and micro-batches",
                  strange);
    else if (positions < 1)
        log_error("sequences of one token have nothing to predict");
    else if (!(deadline >= 0 && deadline <= MAX_DEADLINE_S))
        log_error("a deadline of %g s: expected up to %g, or 0 for the default", deadline,
                  MAX_DEADLINE_S);
    else
        return 0;
    return -EINVAL;
}

int training_open(struct training *t, const struct penstock_options *o,
                  const struct penstock_schedule *schedule, int sequences, int positions)
{
    *t = (struct training){.sequences = sequences,
                           .positions = positions,
                           .deadline =
                               schedule->deadline > 0 ? schedule->deadline : DEADLINE_S};
    int err = parse_recompute(&t->recompute, schedule->recompute);
    if (!err)
        err = check_request(o, schedule->deadline, positions);
    if (!err)
        err = machine_open(&t->machine, o);
    if (err)
        return err;
    err = make_plan(t, schedule);
    if (!err)
        err = check_plan(t, schedule->name);
    if (!err)
        err = check_sizes(t);
    if (err)
        training_close(t);
    return err;
}

int training_start(struct training *t, const struct penstock_options *o)
{
    int err = machine_start(&t->machine, o, t->plan.lanes);
    if (!err)
        err = cut(t, o);
    if (!err)
        err = make_trainer(t, o);
    return err ? err : make_batches(t);
}

void training_close(struct training *t)
{
    if (t->trainer && t->trainer->engine.stalled)
        return;
    trainer_destroy(t->trainer);
    if (t->pinned && t->slab)
        device_host_free(t->slab);
    else
        free(t->slab);
    machine_close(&t->machine);
    sched_plan_fini(&t->plan);
    free(t->batches);
    free(t->list);
    free(t->pairs);
    free(t->ranges);
    *t = (struct training){0};
}

/* Rows by token, equal tokens in the rows' order: a counting sort would need the vocabulary, so sort pairs. */
static int by_token(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void sort_tokens(struct train_batch *b, int32_t *pack, int64_t *pairs)
{
    for (int r = 0; r < b->rows; r++)
        pairs[r] = (int64_t)pack[b->at.tokens + r] << 32 | r;
    qsort(pairs, b->rows, sizeof(*pairs), by_token);
    b->unique = 0;
    for (int r = 0; r < b->rows; r++) {
        int32_t token = (int32_t)(pairs[r] >> 32);
        if (!r || token != pack[b->at.unique_token + b->unique - 1]) {
            pack[b->at.unique_token + b->unique] = token;
            pack[b->at.unique_start + b->unique++] = r;
        }
        pack[b->at.unique_row + r] = (int32_t)pairs[r];
    }
    pack[b->at.unique_start + b->unique] = b->rows;
}

/* A sequence of n tokens has n - 1 rows: the last token is nothing but a target. */
static void fill(struct training *t, int mb, const struct penstock_prompt *sequences,
                 int n, float scale)
{
    struct train_batch *b = &t->batches[mb];
    int32_t *pack = (int32_t *)(t->slab + mb * t->batch_bytes);
    int row = 0;

    *b = (struct train_batch){.segs = n, .pack = pack, .scale = scale};
    for (int i = 0; i < n; i++) {
        int rows = (int)sequences[i].n - 1;
        b->rows += rows;
        b->max_rows = b->max_rows < rows ? rows : b->max_rows;
    }
    b->at = train_layout(b->rows, n);
    b->loss = (float *)(pack + b->at.total);
    b->bad = (int32_t *)(b->loss + b->rows);
    for (int i = 0; i < n; i++) {
        const struct penstock_prompt *q = &sequences[i];
        pack[b->at.seg_row + i] = row;
        for (size_t k = 0; k + 1 < q->n; k++, row++) {
            pack[b->at.tokens + row] = q->ids[k];
            pack[b->at.pos + row] = (int32_t)k;
            pack[b->at.row_seg + row] = i;
            pack[b->at.target + row] = q->ids[k + 1];
        }
    }
    pack[b->at.seg_row + n] = row;
    sort_tokens(b, pack, t->pairs);
}

static int check_sequences(const struct training *t, const struct penstock_prompt *q,
                           int n)
{
    size_t V = t->machine.model->config.V;
    for (int i = 0; i < n; i++) {
        if (q[i].n < 2 || q[i].n > (size_t)t->positions + 1) {
            log_error("sequence %d of %zu token%s has nothing to predict", i, q[i].n,
                      q[i].n == 1 ? "" : "s");
            return -EINVAL;
        }
        for (size_t k = 0; k < q[i].n; k++)
            if (q[i].ids[k] < 0 || (size_t)q[i].ids[k] >= V) {
                log_error("sequence %d, token %zu: id %d is not in the vocabulary of %zu",
                          i, k, q[i].ids[k], V);
                return -EINVAL;
            }
    }
    return 0;
}

/* Runs the plan over n sequences, as many as micro-batches at least; dlogits are times scale. */
static int run(struct training *t, const struct penstock_prompt *sequences, int n,
               float scale)
{
    int m = t->plan.micro_batches;

    for (int mb = 0; mb < m; mb++) {
        int first = (int)((long)mb * n / m), end = (int)((long)(mb + 1) * n / m);
        fill(t, mb, sequences + first, end - first, scale);
    }
    int err = trainer_step(t->trainer, t->list);
    return err == -EDOM ? trainer_search(t->trainer, t->list) : err;
}

/* Of the step's first `rows` rows. */
static double sum_losses(const struct training *t, size_t rows)
{
    double sum = 0;
    for (int mb = 0; mb < t->plan.micro_batches; mb++)
        for (int r = 0; r < t->batches[mb].rows && rows; r++, rows--)
            sum += t->batches[mb].loss[r];
    return sum;
}

static size_t count_targets(const struct penstock_prompt *sequences, int n)
{
    size_t targets = 0;
    for (int i = 0; i < n; i++)
        targets += sequences[i].n - 1;
    return targets;
}

int training_step(struct training *t, double *loss,
                  const struct penstock_prompt *sequences, int n)
{
    size_t targets = count_targets(sequences, n);
    int err = check_sequences(t, sequences, n);

    if (!err)
        err = run(t, sequences, n, 1.0F / targets);
    if (!err)
        *loss = sum_losses(t, targets) / targets;
    return err;
}

int training_evaluate(struct training *t, double *sum, size_t *targets,
                      const struct penstock_prompt *sequences, int n)
{
    int m = t->plan.micro_batches, most = n > m ? n : m;
    struct penstock_prompt *all = calloc(most, sizeof(*all));
    int err = all ? check_sequences(t, sequences, n) : log_no_memory("an evaluation");

    for (int i = 0; i < most && !err; i++)
        all[i] = sequences[i % n];
    if (!err)
        err = run(t, all, most, 0);
    if (!err) {
        *targets = count_targets(sequences, n);
        *sum = sum_losses(t, *targets);
    }
    free(all);
    return err;
}

int training_finish(struct training *t, double *grad_norm)
{
    int err = trainer_finish(t->trainer, grad_norm);
    if (!err && !isfinite(*grad_norm))
        err = trainer_search(t->trainer, t->list);
    return err;
}

double training_bubble(const struct training *t, double *seconds)
{
    const struct engine *e = &t->trainer->engine;
    double busy = 0;

    *seconds = e->last > e->first ? e->last - e->first : 0;
    for (int i = 0; i < e->n_stages; i++)
        busy += engine_busy(e, i);
    return *seconds > 0 ? 1 - busy / (t->machine.lanes.n * *seconds) : 0;
}

int training_predict(const struct training *t, struct engine_times (*times)[ENGINE_KINDS],
                     double *bubble, double *seconds)
{
    struct sched_costs costs = {.rows = t->plan.stages};
    struct sched_error why = {.text = ""};
    struct sched_sim sim;

    costs.row = calloc(costs.rows, sizeof(*costs.row));
    if (!costs.row)
        return log_no_memory("a prediction");
    for (int i = 0; i < costs.rows; i++) {
        double mean[ENGINE_KINDS];
        for (int k = 0; k < ENGINE_KINDS; k++)
            mean[k] = times[i][k].n ? times[i][k].seconds / times[i][k].n : 0;
        costs.row[i] = (struct sched_cost){mean[SCHED_F], mean[SCHED_I], mean[SCHED_W],
                                           mean[SCHED_B]};
    }
    int err = sched_simulate(&sim, &t->plan, &costs, &why);
    if (err)
        log_error("the plan cannot be simulated: %s", why.text);
    else {
        *bubble = sim.bubble;
        *seconds = sim.makespan;
        sched_sim_fini(&sim);
    }
    free(costs.row);
    return err;
}

int training_report(const struct training *t, struct penstock_report *r)
{
    const struct engine *e = &t->trainer->engine;
    int n = t->plan.stages;
    double span;

    r->bubble = training_bubble(t, &span);
    r->stages = calloc((size_t)n * t->plan.copies, sizeof(*r->stages));
    if (!r->stages)
        return log_no_memory("the report");
    r->n_stages = n * t->plan.copies;
    r->micro_batches = t->plan.micro_batches;
    for (int i = 0; i < r->n_stages; i++) {
        struct penstock_stage_report *s = &r->stages[i];
        s->index = i % n;
        snprintf(s->lane, sizeof(s->lane), "%s", engine_lane(e, i)->spec.name);
        s->first = t->ranges[i % n].first;
        s->last = t->ranges[i % n].first + t->ranges[i % n].count - 1;
        s->bytes_predicted = t->trainer->stages[i].predicted;
        s->bytes_measured = t->trainer->stages[i].measured;
        s->busy = span > 0 ? engine_busy(e, i) / span : 0;
    }
    return 0;
}
