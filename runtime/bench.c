/* penstock_bench: how fast a model runs, in many sizes of work on the same lanes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runtime/generation.h"

#define SCHEDULE "forward" /* of sched_forward, the plan of inference */

/* A case, and what the lanes have to be laid out for it. */
struct planned {
    struct penstock_prompt *prompts; /* (sequences) */
    struct session_work work;
    struct batch_limits limits;
    int groups;
    struct stage_range *ranges; /* (n_stages) */
    char skipped[160];          /* why it cannot run, or "" */
};

struct bench {
    const struct penstock_bench *work;
    struct penstock_options options;
    struct generation g;
    struct planned *cases; /* (n_cases) */
    double *seconds;       /* (repetitions) */
    char cpu[128], gpu[128];
};

/* ---- Before anything is loaded ------------------------------------------------------------------ */

static const struct penstock_options *options_of(struct bench *b, int i)
{
    b->options.micro_batches = b->work->cases[i].micro_batches;
    b->options.ubatch = b->work->cases[i].ubatch;
    return &b->options;
}

static int check_case(const struct penstock_bench_case *c)
{
    if (c->prompt >= 0 && c->generate >= 0 && c->depth >= 0 && c->sequences > 0 &&
        c->prompt + c->generate > 0)
        return 0;
    log_error("a case of %d sequences, prompt %d, %d new tokens at depth %d has nothing "
              "to measure",
              c->sequences, c->prompt, c->generate, c->depth);
    return -EINVAL;
}

/* A pass without a prompt begins with one token; a prompt ends with the first one drawn. So n new tokens are n passes
 * that follow the prompt's, and the last token has no position. */
static int make_work(struct planned *p, const struct penstock_bench_case *c)
{
    size_t n = (size_t)c->depth + (c->prompt ? c->prompt : 1);

    p->prompts = calloc(c->sequences, sizeof(*p->prompts));
    if (!p->prompts)
        return log_no_memory("the prompts");
    for (int i = 0; i < c->sequences; i++)
        p->prompts[i].n = n;
    p->work = (struct session_work){
        .prompts = p->prompts,
        .n_prompts = c->sequences,
        .n_predict = c->generate + (c->prompt > 0),
    };
    return 0;
}

/* Makes the sequences of case i, in the place of those of another. */
static int take_case(struct bench *b, int i)
{
    struct planned *p = &b->cases[i];
    b->g.session.context = p->prompts[0].n + p->work.n_predict;
    return session_take(&b->g.session, options_of(b, i), &p->work);
}

static int plan_case(struct bench *b, int i)
{
    const struct penstock_bench_case *c = &b->work->cases[i];
    struct session *s = &b->g.session;
    struct planned *p = &b->cases[i];
    size_t need = (size_t)c->depth + c->prompt + c->generate;
    size_t most = s->machine.model->config.max_positions;
    int err = check_case(c);

    if (err)
        return err;
    if (need > most) {
        snprintf(p->skipped, sizeof(p->skipped),
                 "needs a context of %zu tokens, the model has %zu", need, most);
        return 0;
    }
    err = make_work(p, c);
    if (!err)
        err = take_case(b, i);
    if (!err)
        err = session_cut(s, options_of(b, i), &p->work);
    p->ranges = calloc(s->n_stages, sizeof(*p->ranges));
    if (err || !p->ranges)
        return err ? err : log_no_memory("the stages");
    memcpy(p->ranges, s->ranges, s->n_stages * sizeof(*p->ranges));
    p->limits = s->limits;
    p->groups = s->groups;
    return 0;
}

/* ---- Cases that share what is loaded ------------------------------------------------------------ */

static int most(int a, int b)
{
    return a > b ? a : b;
}

/* The limits and groups that serve a and b. */
static void unite(struct planned *a, const struct planned *b)
{
    struct batch_limits *x = &a->limits;
    const struct batch_limits *y = &b->limits;

    x->rows = most(x->rows, y->rows);
    x->segs = most(x->segs, y->segs);
    x->samples = most(x->samples, y->samples);
    x->table_ld = most(x->table_ld, y->table_ld);
    x->slots = most(x->slots, y->slots);
    x->kv_blocks = most(x->kv_blocks, y->kv_blocks);
    x->logit_rows = most(x->logit_rows, y->logit_rows);
    a->groups = most(a->groups, b->groups);
}

static bool same_stages(const struct bench *b, const struct planned *a,
                        const struct planned *c)
{
    size_t bytes = b->g.session.n_stages * sizeof(*a->ranges);
    return !memcmp(a->ranges, c->ranges, bytes);
}

/* Whether a load of *p fits. -ENOMEM, and p->skipped, if not. */
static int fits(struct bench *b, struct planned *p)
{
    struct session *s = &b->g.session;
    struct setup_shortage why;

    memcpy(s->ranges, p->ranges, s->n_stages * sizeof(*p->ranges));
    int err = session_fits(s, &p->limits, p->groups, &why);
    if (err == -ENOMEM)
        snprintf(p->skipped, sizeof(p->skipped), "needs %.2f GiB, %s has %.2f GiB free",
                 why.need / 0x1p30, why.name, why.have / 0x1p30);
    return err;
}

/* From case `first`, which fits, as many as fit with it or have to be skipped: *last is the one behind, *load serves
 * them all. */
static int gather(struct bench *b, int first, int *last, struct planned *load)
{
    *load = b->cases[first];
    for (*last = first + 1; *last < b->work->n_cases; ++*last) {
        struct planned more = *load, *next = &b->cases[*last];
        if (*next->skipped)
            continue;
        if (!same_stages(b, load, next))
            break;
        unite(&more, next);
        int err = fits(b, &more);
        if (!err)
            *load = more;
        else if (err != -ENOMEM || (err = fits(b, next)) != -ENOMEM)
            return err; /* 0: it fits alone */
    }
    return 0;
}

/* ---- Runs ------------------------------------------------------------------------------------------ */

/* Random ids for every prompt of a case, the same for the same sizes. */
static int32_t *draw_ids(struct bench *b, struct planned *p)
{
    size_t n = p->prompts[0].n, V = b->g.session.machine.model->config.V;
    int32_t *ids = malloc(n * p->work.n_prompts * sizeof(*ids));
    uint64_t x = 88172645463325252ull; /* xorshift64, Marsaglia, 2003 */

    for (size_t i = 0; ids && i < n * p->work.n_prompts; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ids[i] = (int32_t)(x % V);
    }
    for (int i = 0; i < p->work.n_prompts; i++)
        p->prompts[i].ids = ids + i * n;
    return ids;
}

static void show_progress(struct bench *b, int i, int run)
{
    const struct penstock_options *o = &b->options;
    double part = (run + 1.0) / (b->work->repetitions + 1.0);
    if (o->progress)
        o->progress(o->user, "bench", (i + part) / b->work->n_cases);
}

/* The first run fills the cache to the case's depth; those that count begin there. */
static int repeat(struct bench *b, int i, double *bubble)
{
    struct session *s = &b->g.session;
    int err = generation_run(&b->g);

    for (int q = 0; q < s->n_sequences; q++)
        s->sequences[q].cached = b->work->cases[i].depth;
    for (int r = 0; r < b->work->repetitions && !err; r++) {
        show_progress(b, i, r);
        engine_reset_times(&s->infer->engine);
        err = generation_run(&b->g);
        b->seconds[r] = b->g.end - b->g.begin;
        *bubble += session_bubble(s) / b->work->repetitions;
    }
    return err;
}

static struct penstock_bench_result result(const struct bench *b, int i)
{
    const struct lane_set *lanes = &b->g.session.machine.lanes;
    bool cpu = false, cuda = false;

    for (int l = 0; l < lanes->n; l++)
        *(lanes->lanes[l].spec.kind == LANE_CPU ? &cpu : &cuda) = true;
    return (struct penstock_bench_result){
        .index = i,
        .schedule = SCHEDULE,
        .stages = b->g.session.n_stages,
        .backend = cpu && cuda ? "CUDA,CPU"
                   : cpu       ? "CPU"
                               : "CUDA",
        .cpu = b->cpu,
        .gpu = b->gpu,
    };
}

static int run_case(struct bench *b, int i)
{
    static const struct kernel_sampling greedy = {.repeat_penalty = 1};
    struct session *s = &b->g.session;
    struct penstock_bench_result r = result(b, i);
    int32_t *ids = draw_ids(b, &b->cases[i]);
    int err = ids ? take_case(b, i) : log_no_memory("the prompts");

    if (!err)
        err = batcher_init(&b->g.batcher, s, &greedy, NULL);
    if (err) {
        free(ids);
        return err;
    }
    b->g.prompt_tokens = b->cases[i].prompts[0].n * s->n_sequences;
    err = repeat(b, i, &r.bubble);
    if (err == -ETIMEDOUT)
        return err;
    batcher_fini(&b->g.batcher);
    free(ids);
    if (err)
        return err;
    r.seconds = b->seconds;
    r.n = b->work->repetitions;
    r.micro_batches = s->groups;
    r.link = session_link(s);
    return b->work->on_result(b->work->user, &r);
}

static int skip_case(struct bench *b, int i)
{
    struct penstock_bench_result r = result(b, i);
    r.skipped = b->cases[i].skipped;
    return b->work->on_result(b->work->user, &r);
}

/* Runs the cases from i on that one load serves, or skips case i. */
static int run_some(struct bench *b, int *i)
{
    struct session *s = &b->g.session;
    struct planned load;
    int last, err = *b->cases[*i].skipped ? -ENOMEM : fits(b, &b->cases[*i]);

    if (err)
        return err == -ENOMEM ? skip_case(b, (*i)++) : err;
    err = gather(b, *i, &last, &load);
    if (!err)
        err = session_load(s, &b->options, &load.limits, load.groups);
    if (err)
        return err;
    s->infer->config.progress = NULL; /* the whole benchmark's is shown */
    for (; *i < last && !err; ++*i)
        err = *b->cases[*i].skipped ? skip_case(b, *i) : run_case(b, *i);
    if (err != -ETIMEDOUT)
        session_unload(s);
    return err;
}

/* ---- The whole ----------------------------------------------------------------------------------- */

static int name_devices(struct bench *b)
{
    const struct machine *m = &b->g.session.machine;
    struct place_machine here;
    int err = place_describe(m->place, &here);

    if (err)
        return err;
    memcpy(b->cpu, here.cpu, sizeof(b->cpu));
    place_machine_free(&here);
    for (int l = 0; l < m->lanes.n && !*b->gpu; l++) {
        struct device_info info;
        if (m->lanes.lanes[l].spec.kind == LANE_CUDA &&
            !device_query(&info, m->lanes.lanes[l].spec.device))
            memcpy(b->gpu, info.name, sizeof(b->gpu));
    }
    return 0;
}

static int run_all(struct bench *b)
{
    const struct penstock_bench *w = b->work;
    int err = session_start(&b->g.session, &b->options);

    b->cases = calloc(w->n_cases, sizeof(*b->cases));
    b->seconds = calloc(w->repetitions, sizeof(*b->seconds));
    if (!err && (!b->cases || !b->seconds))
        err = log_no_memory("the cases");
    if (!err)
        err = name_devices(b);
    for (int i = 0; i < w->n_cases && !err; i++)
        err = plan_case(b, i);
    for (int i = 0; i < w->n_cases && !err;)
        err = run_some(b, &i);
    return err;
}

int penstock_bench(const struct penstock_options *options,
                   const struct penstock_bench *work)
{
    struct penstock_generate how = {.ignore_eos = true};
    struct bench b = {.work = work, .options = *options};

    if (work->n_cases < 1 || work->repetitions < 1) {
        log_error("a benchmark has at least one case and one repetition");
        return -EINVAL;
    }
    int err = session_prepare(&b.g.session, options);
    if (err)
        return err;
    b.g.work = &how;
    err = run_all(&b);
    if (err == -ETIMEDOUT) /* workers hang and may still use all of this */
        return err;
    session_close(&b.g.session);
    for (int i = 0; b.cases && i < work->n_cases; i++) {
        free(b.cases[i].prompts);
        free(b.cases[i].ranges);
    }
    free(b.cases);
    free(b.seconds);
    return err;
}
