/* From options and prompts to a loaded engine. */
#include "runtime/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "stages/partition.h"

#define DEFAULT_UBATCH  512
/* Context of an open-ended run (n_predict -1) when none is asked for. */
#define DEFAULT_CONTEXT 4096
/* Rows of logits held at once. */
#define LOGIT_ROWS      64
#define DEADLINE_S      600
#define MAX_GROUPS      256

/* Below this many rows a pass costs what the weights cost to read: matrix rate over memory bandwidth,
 * in rows, of a CPU core and of a data-centre GPU. Rough until costs are measured. */
#define CPU_FLOOR_ROWS 12
#define GPU_FLOOR_ROWS 160

/* The context: what is asked for, else what the longest sequence needs, never more than the model has. */
static int choose_context(struct session *s, const struct penstock_options *o,
                          const struct session_work *w)
{
    size_t most = s->machine.model->config.max_positions, need = 0;

    if (o->context > most) {
        log_error("a context of %zu is too long: the model has %zu positions", o->context,
                  most);
        return -EINVAL;
    }
    for (int i = 0; i < w->n_prompts; i++) {
        size_t open_end = w->prompts[i].n < DEFAULT_CONTEXT ? DEFAULT_CONTEXT : most;
        size_t n = w->n_predict < 0 ? open_end : w->prompts[i].n + (size_t)w->n_predict;
        need = n > need ? n : need;
    }
    s->context = o->context ? o->context : need < most ? need : most;
    return 0;
}

static int check_prompt(const struct session *s, const struct session_work *w, int i)
{
    const struct penstock_prompt *p = &w->prompts[i];
    size_t room = s->context - (w->n_predict != 0 && s->context ? 1 : 0);

    if (!p->n) {
        log_error("prompt %d is empty", i);
        return -EINVAL;
    }
    if (p->n > room) {
        log_error(
            "prompt %d has %zu tokens and the context is %zu: raise -c (the model has "
            "%zu positions) or shorten it",
            i, p->n, s->context, s->machine.model->config.max_positions);
        return -EINVAL;
    }
    for (size_t t = 0; t < p->n; t++)
        if (p->ids[t] < 0 || (size_t)p->ids[t] >= s->machine.model->config.V) {
            log_error("prompt %d, token %zu: id %d is not in the vocabulary of %zu", i, t,
                      p->ids[t], s->machine.model->config.V);
            return -EINVAL;
        }
    return 0;
}

static size_t blocks_of(size_t tokens)
{
    return (tokens + KERNEL_KV_BLOCK - 1) / KERNEL_KV_BLOCK;
}

static int check_prompts(const struct session *s, const struct session_work *w)
{
    int err = 0;
    for (int i = 0; i < w->n_prompts && !err; i++)
        err = check_prompt(s, w, i);
    return err;
}

static void free_sequences(struct session *s)
{
    for (int i = 0; s->sequences && i < s->n_sequences; i++)
        free(s->sequences[i].tokens);
    free(s->sequences);
    s->sequences = NULL;
    s->n_sequences = 0;
}

/* Makes the sequences; counts their KV blocks. */
static int make_sequences(struct session *s, const struct session_work *w)
{
    size_t blocks = 0;
    free_sequences(s);
    s->sequences = calloc(w->n_prompts ? w->n_prompts : 1, sizeof(*s->sequences));
    if (!s->sequences)
        return log_no_memory("the sequences");
    s->n_sequences = w->n_prompts;
    for (int i = 0; i < w->n_prompts; i++) {
        struct sequence *q = &s->sequences[i];
        q->prompt = w->prompts[i].ids;
        q->n_prompt = w->prompts[i].n;
        q->max_new = s->context - q->n_prompt;
        if (w->n_predict >= 0 && q->max_new > (size_t)w->n_predict)
            q->max_new = w->n_predict;
        q->group = (int)((long)i * s->groups / w->n_prompts);
        q->block_first = (int)blocks;
        q->tokens = calloc(q->max_new ? q->max_new : 1, sizeof(*q->tokens));
        if (!q->tokens)
            return log_no_memory("the new tokens: lower -n or -c");
        size_t n = blocks_of(q->n_prompt + q->max_new);
        s->limits.table_ld = (int)n > s->limits.table_ld ? (int)n : s->limits.table_ld;
        blocks += n;
        if (blocks > INT32_MAX / 2) {
            log_error("%d prompts of this length need too many KV blocks", w->n_prompts);
            return -EINVAL;
        }
    }
    s->limits.kv_blocks = (int)blocks;
    return 0;
}

static void set_limits(struct session *s, const struct session_work *w)
{
    struct batch_limits *m = &s->limits;
    size_t tokens = 0, longest = 0;
    int group = (s->n_sequences + s->groups - 1) / s->groups;

    for (int i = 0; i < s->n_sequences; i++) {
        tokens += s->sequences[i].n_prompt;
        longest = s->sequences[i].n_prompt > longest ? s->sequences[i].n_prompt : longest;
    }
    size_t rows = w->score ? longest : tokens;
    m->rows = (int)(rows < s->ubatch ? rows : s->ubatch);
    m->rows = m->rows < group ? group : m->rows;
    m->segs = w->score ? 1 : m->rows < s->n_sequences ? m->rows : s->n_sequences;
    m->samples = w->score ? 0 : m->segs;
    m->slots = s->n_sequences;
    m->score = w->score;
    int most = w->score ? m->rows : m->samples;
    m->logit_rows = most < LOGIT_ROWS ? most : LOGIT_ROWS;
}

static int count_stages(struct session *s, const struct penstock_options *o)
{
    size_t layers = s->machine.model->config.L;
    if (o->stages < 0) {
        log_error("--stages %d: expected a positive number", o->stages);
        return -EINVAL;
    }
    s->n_stages = o->stages ? o->stages : s->machine.n_specs;
    if (!o->stages && !o->devices && (size_t)s->n_stages > layers)
        s->n_stages = (int)layers;
    if ((size_t)s->n_stages > layers) {
        log_error("%d stages cannot share %zu layers: every stage needs at least one",
                  s->n_stages, layers);
        return -EINVAL;
    }
    return 0;
}

static int count_groups(struct session *s, const struct penstock_options *o,
                        const struct session_work *w)
{
    if (o->micro_batches < 0 || o->micro_batches > MAX_GROUPS) {
        log_error("--micro-batches %d: expected 1 to %d", o->micro_batches, MAX_GROUPS);
        return -EINVAL;
    }
    if (o->ubatch < 0 || o->ubatch > 1 << 20) {
        log_error("--ubatch %d: expected 1 to %d", o->ubatch, 1 << 20);
        return -EINVAL;
    }
    s->ubatch = o->ubatch ? o->ubatch : DEFAULT_UBATCH;
    s->groups = o->micro_batches ? o->micro_batches : s->n_stages;
    s->groups = s->groups > w->n_prompts ? w->n_prompts : s->groups;
    s->groups = s->groups > MAX_GROUPS ? MAX_GROUPS : s->groups;
    s->groups = s->groups < 1 ? 1 : s->groups;
    return 0;
}

/* What passes the layers and the head, few rows counted as a whole pass over the weights. */
static struct partition_work count_work(const struct session *s,
                                        const struct session_work *w)
{
    struct partition_work p = {0};
    bool gpu = s->machine.lanes.lanes[0].spec.kind == LANE_CUDA;
    double floor = gpu ? GPU_FLOOR_ROWS : CPU_FLOOR_ROWS, tokens = 0, new = 0;

    for (int i = 0; i < s->n_sequences; i++) {
        tokens += s->sequences[i].n_prompt;
        double m = s->sequences[i].max_new;
        new = m > new ? m : new;
    }
    double group = (double)s->n_sequences / s->groups;
    double decode = (new > 1 ? new - 1 : 0) * s->groups * (group < floor ? floor : group);
    p.layer_rows = tokens + decode;
    p.head_rows =
        w->score ? tokens : decode + (s->n_sequences < floor ? floor : s->n_sequences);
    p.mean_context = tokens / s->n_sequences / 2;
    return p;
}

int session_cut(struct session *s, const struct penstock_options *o,
                const struct session_work *w)
{
    const struct model_config *c = &s->machine.model->config;
    struct partition_work work = count_work(s, w);
    double layer, embed, head, *speed = calloc(s->n_stages, sizeof(*speed));
    int err = 0;

    if (!s->ranges)
        s->ranges = calloc(s->n_stages, sizeof(*s->ranges));
    if (!s->stage_lane)
        s->stage_lane = calloc(s->n_stages, sizeof(*s->stage_lane));
    if (!speed || !s->ranges || !s->stage_lane)
        err = log_no_memory("the stages");
    for (int i = 0; i < s->n_stages && !err; i++) {
        s->stage_lane[i] = (int)((long)i * s->machine.lanes.n / s->n_stages);
        speed[i] = machine_speed(&s->machine.lanes.lanes[s->stage_lane[i]]);
    }
    partition_costs(c, &work, &layer, &embed, &head);
    if (err)
        ;
    else if (o->split && o->layers) {
        log_error("--split and --layers exclude each other");
        err = -EINVAL;
    } else if (o->split)
        err = partition_by_ratio(s->ranges, s->n_stages, c->L, o->split);
    else if (o->layers)
        err = partition_exact(s->ranges, s->n_stages, c->L, o->layers);
    else
        err = partition_by_cost(s->ranges, s->n_stages, c->L, layer, embed, head, speed);
    free(speed);
    return err;
}

static struct infer_config engine_config(struct session *s,
                                         const struct batch_limits *limits, int groups)
{
    return (struct infer_config){
        .model = s->machine.model,
        .place = s->machine.place,
        .lanes = &s->machine.lanes,
        .n_stages = s->n_stages,
        .ranges = s->ranges,
        .stage_lane = s->stage_lane,
        .limits = *limits,
        .groups = groups,
        .link = s->machine.link,
        .order = s->machine.order,
        .deadline = DEADLINE_S,
    };
}

int session_fits(struct session *s, const struct batch_limits *limits, int groups,
                 struct setup_shortage *why)
{
    struct infer_config config = engine_config(s, limits, groups);
    return infer_fits(&config, why);
}

int session_load(struct session *s, const struct penstock_options *o,
                 const struct batch_limits *limits, int groups)
{
    struct infer_config config = engine_config(s, limits, groups);
    config.progress = o->progress;
    config.user = o->user;
    return infer_create(&s->infer, &config);
}

void session_unload(struct session *s)
{
    infer_destroy(s->infer);
    s->infer = NULL;
}

int session_prepare(struct session *s, const struct penstock_options *o)
{
    *s = (struct session){0};
    int err = machine_open(&s->machine, o);
    if (err)
        return err;
    err = count_stages(s, o);
    if (err)
        session_close(s);
    return err;
}

int session_start(struct session *s, const struct penstock_options *o)
{
    int lanes = s->n_stages < s->machine.n_specs ? s->n_stages : s->machine.n_specs;
    return machine_start(&s->machine, o, lanes);
}

int session_take(struct session *s, const struct penstock_options *o,
                 const struct session_work *w)
{
    int err = count_groups(s, o, w);
    s->limits = (struct batch_limits){0};
    if (!err)
        err = make_sequences(s, w);
    if (!err)
        set_limits(s, w);
    return err;
}

int session_open(struct session *s, const struct penstock_options *o,
                 const struct session_work *w)
{
    int err = session_prepare(s, o);
    if (err)
        return err;
    err = choose_context(s, o, w);
    if (!err)
        err = check_prompts(s, w);
    if (!err)
        err = session_take(s, o, w);
    if (!err)
        err = session_start(s, o);
    if (!err)
        err = session_cut(s, o, w);
    if (!err)
        err = session_load(s, o, &s->limits, s->groups);
    if (err)
        session_close(s);
    return err;
}

void session_close(struct session *s)
{
    if (s->infer && s->infer->engine.stalled)
        return;
    infer_destroy(s->infer);
    machine_close(&s->machine);
    free_sequences(s);
    free(s->ranges);
    free(s->stage_lane);
    *s = (struct session){0};
}

const char *session_link(const struct session *s)
{
    const struct infer *f = s->infer;
    const char *name = "none";
    for (int i = 1; i < f->config.n_stages; i++) {
        if (!f->links[i])
            continue;
        const char *kind = link_kind_name(f->links[i]->ops->kind);
        if (strcmp(name, "none") && strcmp(name, kind))
            return "mixed";
        name = kind;
    }
    return name;
}

static double span(const struct engine *e)
{
    return e->last > e->first ? e->last - e->first : 0;
}

double session_bubble(const struct session *s)
{
    const struct engine *e = &s->infer->engine;
    double busy = 0;
    for (int i = 0; i < s->n_stages; i++)
        busy += engine_busy(e, i);
    return span(e) > 0 ? 1 - busy / (s->machine.lanes.n * span(e)) : 0;
}

int session_report(const struct session *s, struct penstock_report *r)
{
    const struct infer *f = s->infer;
    const struct engine *e = &f->engine;

    r->stages = calloc(s->n_stages, sizeof(*r->stages));
    if (!r->stages)
        return log_no_memory("the report");
    r->n_stages = s->n_stages;
    r->micro_batches = s->groups;
    snprintf(r->link, sizeof(r->link), "%s", session_link(s));
    for (int i = 0; i < s->n_stages; i++) {
        const struct lane *lane = &s->machine.lanes.lanes[s->stage_lane[i]];
        struct penstock_stage_report *t = &r->stages[i];
        t->index = i;
        snprintf(t->lane, sizeof(t->lane), "%s", lane->spec.name);
        t->first = s->ranges[i].first;
        t->last = s->ranges[i].first + s->ranges[i].count - 1;
        t->bytes_predicted = f->predicted[i];
        t->bytes_measured = f->measured[i];
        /* What kernels took for themselves is the lane's: shown with its first stage. */
        if (!i || s->stage_lane[i] != s->stage_lane[i - 1])
            t->bytes_measured += lane->ctx->scratch_bytes;
        t->busy = span(e) > 0 ? engine_busy(e, i) / span(e) : 0;
    }
    r->bubble = session_bubble(s);
    return 0;
}
