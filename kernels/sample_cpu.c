/* Draws a token from logits: repeat penalty, top-k, top-p, min-p, temperature. */
#include "kernels/cpu.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>

#define SAMPLE_FN static inline
#include "kernels/sample.h"

struct sample_job {
    const struct vec_ops *vec;
    int32_t *tokens, *recent;
    float *logits; /* (rows, V) */
    const struct kernel_sample_row *row;
    const struct kernel_sampling *p;
    int V;
    char *scratch;
    size_t scratch_stride;
    atomic_int bad; /* 1 + a row whose logits are no numbers */
};

/* One row's candidates. */
struct candidates {
    const float *x; /* (V) */
    int64_t *mass;  /* (V) */
    uint32_t *key;  /* (V) */
    int V;
    float max;
    struct sample_cut cut;
};

/* Every token among the recent ones is penalised once. */
static void penalise(const struct sample_job *job, float *x,
                     const struct kernel_sample_row *row)
{
    const int32_t *ring = job->recent + (size_t)row->slot * KERNEL_RECENT;
    int32_t seen[KERNEL_RECENT];
    int n = 0, i;

    for (int back = 1; back <= row->recent && back <= row->pos; back++) {
        int32_t token = ring[(row->pos - back) % KERNEL_RECENT];
        for (i = 0; i < n && seen[i] != token; i++)
            ;
        if (i < n || n == KERNEL_RECENT || token < 0 || token >= job->V)
            continue;
        seen[n++] = token;
        x[token] = sample_penalise(x[token], job->p->repeat_penalty);
    }
}

static int32_t first_of(const float *x, float value)
{
    int32_t i = 0;

    while (x[i] != value)
        i++;
    return i;
}

static int64_t weight_of(const struct candidates *c, int i, bool by_mass)
{
    return by_mass ? c->mass[i] : 1;
}

/* The shortest prefix of the candidates left that has `want` in count or in mass. The
 * key is found eight bits at a time from the top; the bin of the old cut's key may
 * hold more ties than are left, which does no harm as it is the last. */
static void cut_at(struct candidates *c, int64_t want, bool by_mass)
{
    uint32_t prefix = 0, mask = 0;
    int64_t above = 0, one = 1;

    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t bin[256] = {0};
        int digit = 255;
        for (int i = 0; i < c->V; i++) {
            if ((c->key[i] & mask) == prefix && c->key[i] >= c->cut.key)
                bin[c->key[i] >> shift & 255] += weight_of(c, i, by_mass);
        }
        for (; digit > 0 && above + bin[digit] < want; digit--)
            above += bin[digit];
        prefix |= (uint32_t)digit << shift;
        mask |= 255u << shift;
    }
    for (int i = 0; i < c->V; i++) {
        if (c->key[i] == prefix) {
            one = weight_of(c, i, by_mass);
            break;
        }
    }
    c->cut = (struct sample_cut){prefix, (want - above + one - 1) / one};
}

/* Calls for the candidates left, by id: adds their masses until the sum is above
 * `stop`; returns that id, or -1 with the whole sum in *total. */
static int32_t walk(const struct candidates *c, int64_t stop, int64_t *total)
{
    int64_t ties = c->cut.ties;

    *total = 0;
    for (int32_t i = 0; i < c->V; i++) {
        if (c->key[i] < c->cut.key || (c->key[i] == c->cut.key && ties-- <= 0))
            continue;
        *total += c->mass[i];
        if (*total > stop)
            return i;
    }
    return -1;
}

static void cut_top_p(const struct sample_job *job, struct candidates *c)
{
    int64_t total, want;

    job->vec->masses(c->mass, c->x, (size_t)c->V, c->max, 1.0f);
    walk(c, INT64_MAX, &total);
    want = (int64_t)((double)job->p->top_p * (double)total);
    cut_at(c, want < 1 ? 1 : want, true);
}

static void cut_min_p(const struct sample_job *job, struct candidates *c)
{
    uint32_t key = sample_key(c->max + logf(job->p->min_p));

    if (key > c->cut.key)
        c->cut = (struct sample_cut){key, c->V};
}

static int32_t draw(const struct sample_job *job, struct candidates *c,
                    const struct kernel_sample_row *row)
{
    const struct kernel_sampling *p = job->p;
    uint64_t random = sample_random(p->seed, (uint32_t)row->stream, (uint32_t)row->pos);
    int64_t total, stop;

    for (int i = 0; i < c->V; i++)
        c->key[i] = sample_key(c->x[i]);
    if (p->top_k > 0 && p->top_k < c->V)
        cut_at(c, p->top_k, false);
    if (p->top_p < 1.0f)
        cut_top_p(job, c);
    if (p->min_p > 0.0f)
        cut_min_p(job, c);
    job->vec->masses(c->mass, c->x, (size_t)c->V, c->max, 1.0f / p->temperature);
    walk(c, INT64_MAX, &total);
    stop = (int64_t)((unsigned __int128)random * (uint64_t)total >> 64);
    return walk(c, stop, &total);
}

static int32_t pick_token(struct sample_job *job, int r, int thread)
{
    const struct kernel_sample_row *row = &job->row[r];
    float *x = job->logits + (size_t)r * job->V;
    char *scratch = job->scratch + (size_t)thread * job->scratch_stride;
    struct candidates c = {.x = x, .V = job->V, .cut = {0, job->V}};
    bool nan = false;

    if (job->p->repeat_penalty != 1.0f)
        penalise(job, x, row);
    c.max = job->vec->max(x, (size_t)job->V, &nan);
    if (nan || !isfinite(c.max)) {
        atomic_store(&job->bad, 1 + r);
        return 0;
    }
    if (job->p->temperature == 0)
        return first_of(x, c.max);
    c.mass = (int64_t *)scratch;
    c.key = (uint32_t *)(c.mass + job->V);
    return draw(job, &c, row);
}

static void sample_row(void *arg, int r, int thread)
{
    struct sample_job *job = arg;
    const struct kernel_sample_row *row = &job->row[r];
    int32_t token = pick_token(job, r, thread);

    job->tokens[row->slot] = token;
    job->recent[(size_t)row->slot * KERNEL_RECENT + row->pos % KERNEL_RECENT] = token;
}

void sample_cpu(struct kernel_ctx *ctx, int32_t *tokens, int32_t *recent, int32_t *bad,
                float *logits, const struct kernel_sample_row *row,
                const struct kernel_sampling *p, int rows, int V)
{
    struct kernel_sampling clamped = kernel_sampling_clamp(p);
    struct sample_job job = {
        .vec = cpu_vec(ctx),
        .tokens = tokens,
        .recent = recent,
        .logits = logits,
        .row = row,
        .p = &clamped,
        .V = V,
    };
    size_t bytes = (size_t)V * (sizeof(int64_t) + sizeof(uint32_t));
    int r;

    if (rows <= 0 || !cpu_scratch(ctx, &job.scratch, &job.scratch_stride, bytes))
        return;
    cpu_run(ctx, sample_row, &job, rows);
    r = atomic_load(&job.bad);
    if (r) {
        log_error("logits of sequence %d at position %d are not finite: the weights are "
                  "damaged, or too large for the number type",
                  row[r - 1].stream, row[r - 1].pos);
        *bad = 1;
        kernel_fail(ctx, -EDOM);
    }
}
