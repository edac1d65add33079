/* The best cut of a model by dynamic programming, where the lanes do not depend on each other: every lane
 * has one stage, or all layers are equal, so that only their number on a lane matters. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "stages/partition_parts.h"

/* A lane with its stages, in the order of the first of them. */
struct share {
    int lane, stages;
    double live_sum,
        least_live; /* of its stages: together, and of the stage with the fewest */
    size_t layers;  /* what it gets */
};

struct best {
    struct partition_sums sums;
    struct share *shares; /* (n_shares) */
    int n_shares;
    struct cut *cuts; /* (n_shares + 1, layers + 1) */
};

/* The best way to put the first i layers on the first n shares: its worth, and how many layers the last
 * of them has. */
struct cut {
    double value;
    size_t last;
};

struct load {
    double excess, time; /* bytes over the lane's cap, seconds */
};

enum aim { LEAST_EXCESS, LEAST_TIME, LEAST_SQUARES };

/* ---- Sums ------------------------------------------------------------------------------------- */

double partition_speed(const struct partition_problem *p, int lane)
{
    return p->speed ? p->speed[lane] : 1;
}

int partition_lane(const struct partition_problem *p, int stage)
{
    return p->lane ? p->lane[stage] : stage;
}

double partition_excess(const struct partition_problem *p, int lane, double bytes)
{
    return p->cap && p->cap[lane] ? bytes - (double)p->cap[lane] : -INFINITY;
}

/* A table that both ends of a model share is held once by a lane that has both. */
static void sum_ends(struct partition_sums *s)
{
    const struct partition_problem *p = s->p;
    int first = partition_lane(p, 0), last = partition_lane(p, p->stages - 1);

    s->lane_work[first] += p->embed_time;
    s->lane_work[last] += p->head_time;
    s->lane_bytes[first] += (double)p->embed_bytes;
    s->lane_bytes[last] += (double)p->head_bytes;
    if (p->tied && first == last)
        s->lane_bytes[first] -= fmin((double)p->embed_bytes, (double)p->head_bytes);
}

static int sums_init(struct partition_sums *s, const struct partition_problem *p)
{
    s->p = p;
    s->work = calloc(p->layers + 1, sizeof(*s->work));
    s->bytes = calloc(p->layers + 1, sizeof(*s->bytes));
    s->lane_work = calloc((size_t)p->lanes, sizeof(*s->lane_work));
    s->lane_bytes = calloc((size_t)p->lanes, sizeof(*s->lane_bytes));
    if (!s->work || !s->bytes || !s->lane_work || !s->lane_bytes)
        return log_no_memory("a partition");
    for (size_t i = 0; i < p->layers; i++) {
        s->work[i + 1] = s->work[i] + p->layer_time[i];
        s->bytes[i + 1] = s->bytes[i] + (p->layer_bytes ? (double)p->layer_bytes[i] : 0);
    }
    sum_ends(s);
    for (int i = 0; i < p->stages && p->fixed; i++)
        s->lane_bytes[partition_lane(p, i)] += (double)p->fixed[i];
    return 0;
}

static void sums_fini(struct partition_sums *s)
{
    free(s->work);
    free(s->bytes);
    free(s->lane_work);
    free(s->lane_bytes);
}

/* ---- Shares ----------------------------------------------------------------------------------- */

static double live_of(const struct partition_problem *p, int stage)
{
    return p->live ? p->live[stage] : 0;
}

static void list_shares(struct best *b)
{
    const struct partition_problem *p = b->sums.p;

    for (int i = 0, n; i < p->stages; i++) {
        double live = live_of(p, i);
        for (n = 0; n < b->n_shares && b->shares[n].lane != partition_lane(p, i);)
            n++;
        struct share *s = &b->shares[n];
        if (n == b->n_shares) {
            *s = (struct share){.lane = partition_lane(p, i), .least_live = live};
            b->n_shares++;
        }
        s->stages++;
        s->live_sum += live;
        s->least_live = fmin(s->least_live, live);
    }
}

/* With n layers, of which the last is layer i - 1 if that matters. Every stage has one of them; the rest fits best where
 * the fewest micro-batches are alive. */
static struct load load_of(const struct best *b, const struct share *s, size_t i,
                           size_t n)
{
    const struct partition_sums *u = &b->sums;
    double live = s->live_sum + ((double)n - s->stages) * s->least_live;
    double work = u->lane_work[s->lane] + u->work[i] - u->work[i - n];
    double bytes = u->lane_bytes[s->lane] + u->bytes[i] - u->bytes[i - n] +
                   live * (double)u->p->act_bytes;

    return (struct load){partition_excess(u->p, s->lane, bytes),
                         work / partition_speed(u->p, s->lane)};
}

/* before: the best cuts of fewer layers on the shares before s. */
static struct cut best_cut(const struct best *b, const struct cut *before,
                           const struct share *s, size_t i, enum aim aim,
                           struct load limit)
{
    struct cut best = {INFINITY, 0};
    for (size_t n = (size_t)s->stages; n <= i; n++) {
        struct load l = load_of(b, s, i, n);
        if (l.excess > limit.excess || l.time > limit.time)
            continue;
        double v = before[i - n].value;
        v = aim == LEAST_EXCESS ? fmax(v, l.excess)
            : aim == LEAST_TIME ? fmax(v, l.time)
                                : v + l.time * l.time;
        if (v < best.value)
            best = (struct cut){v, n};
    }
    return best;
}

/* Gives the shares their layers and returns the cut's worth; no lane is worse than the limit. */
static double fill_cuts(struct best *b, enum aim aim, struct load limit)
{
    size_t layers = b->sums.p->layers, row = layers + 1, end = layers;

    b->cuts[0].value = aim == LEAST_EXCESS ? -INFINITY : 0;
    for (size_t i = 1; i <= layers; i++)
        b->cuts[i].value = INFINITY;
    for (int n = 0; n < b->n_shares; n++)
        for (size_t i = 0; i <= layers; i++)
            b->cuts[(n + 1) * row + i] =
                best_cut(b, b->cuts + n * row, &b->shares[n], i, aim, limit);
    for (int n = b->n_shares; n > 0; n--) {
        b->shares[n - 1].layers = b->cuts[n * row + end].last;
        end -= b->shares[n - 1].layers;
    }
    return b->cuts[b->n_shares * row + layers].value;
}

/* The cut with the least excess; if that is none, the one with the least time, and among those the one with the least
 * squares. */
static void fill_shares(struct best *b)
{
    struct load limit = {INFINITY, INFINITY};

    if (fill_cuts(b, LEAST_EXCESS, limit) > 0)
        return;
    limit.excess = 0;
    limit.time = fill_cuts(b, LEAST_TIME, limit) * PARTITION_SAME;
    fill_cuts(b, LEAST_SQUARES, limit);
}

/* ---- Stages ----------------------------------------------------------------------------------- */

/* The stages of a lane, of equal parts; the first ones of the lane get what is left over. */
static void spread(int *count, const struct partition_problem *p, const struct share *s)
{
    int k = 0, layers = (int)s->layers;

    for (int i = 0; i < p->stages; i++)
        if (partition_lane(p, i) == s->lane) {
            count[i] = layers / s->stages + (k < layers % s->stages);
            k++;
        }
}

/* Moves a layer of a lane from the stage where most micro-batches are alive to the one where the fewest are. */
static bool ease(int *count, const struct partition_problem *p, const struct share *s)
{
    int from = -1, to = -1;

    for (int i = 0; i < p->stages; i++) {
        if (partition_lane(p, i) != s->lane)
            continue;
        if (live_of(p, i) == s->least_live && to < 0)
            to = i;
        if (count[i] > 1 && (from < 0 || live_of(p, i) > live_of(p, from)))
            from = i;
    }
    if (from < 0 || live_of(p, from) == s->least_live)
        return false;
    count[from]--;
    count[to]++;
    return true;
}

static double lane_excess(const struct partition_sums *u, const int *count, int lane)
{
    const struct partition_problem *p = u->p;
    double bytes = u->lane_bytes[lane];
    size_t first = 0;

    for (int i = 0; i < p->stages; first += (size_t)count[i++])
        if (partition_lane(p, i) == lane)
            bytes += u->bytes[first + (size_t)count[i]] - u->bytes[first] +
                     live_of(p, i) * count[i] * (double)p->act_bytes;
    return partition_excess(p, lane, bytes);
}

static double lane_time(const struct partition_sums *u, const int *count, int lane)
{
    double work = u->lane_work[lane];
    size_t first = 0;

    for (int i = 0; i < u->p->stages; first += (size_t)count[i++])
        if (partition_lane(u->p, i) == lane)
            work += u->work[first + (size_t)count[i]] - u->work[first];
    return work / partition_speed(u->p, lane);
}

static void share_out(int *count, const struct best *b)
{
    for (int n = 0; n < b->n_shares; n++) {
        const struct share *s = &b->shares[n];
        spread(count, b->sums.p, s);
        while (lane_excess(&b->sums, count, s->lane) > 0 && ease(count, b->sums.p, s))
            ;
    }
}

/* ---- The whole -------------------------------------------------------------------------------- */

static bool layers_are_equal(const struct partition_problem *p)
{
    for (size_t i = 1; i < p->layers; i++)
        if (p->layer_time[i] != p->layer_time[0] ||
            (p->layer_bytes && p->layer_bytes[i] != p->layer_bytes[0]))
            return false;
    return true;
}

/* Dynamic programming; where it is not exact, from what would be best if all layers were equal. */
static int find_best(int *count, struct best *b, bool *exact)
{
    const struct partition_problem *p = b->sums.p;

    b->shares = calloc((size_t)p->stages, sizeof(*b->shares));
    if (!b->shares)
        return log_no_memory("a partition");
    list_shares(b);
    b->cuts = calloc((size_t)(b->n_shares + 1) * (p->layers + 1), sizeof(*b->cuts));
    if (!b->cuts)
        return log_no_memory("a partition");
    fill_shares(b);
    share_out(count, b);
    *exact = b->n_shares == p->stages || layers_are_equal(p);
    return *exact ? 0 : partition_search(&b->sums, count, exact);
}

/* -ENOSPC if a lane is too full. */
static int report(struct stage_range *ranges, struct partition_result *r,
                  const struct partition_sums *u, const int *count)
{
    const struct partition_problem *p = u->p;
    double most = 0;
    int first = 0;

    for (int i = 0; i < p->stages; first += count[i++])
        ranges[i] = (struct stage_range){first, count[i]};
    for (int lane = 0; lane < p->lanes; lane++) {
        double excess = lane_excess(u, count, lane);
        r->slowest = fmax(r->slowest, lane_time(u, count, lane));
        if (excess > most) {
            most = excess;
            r->full_lane = lane;
        }
    }
    r->missing = (size_t)most;
    return most > 0 ? -ENOSPC : 0;
}

int partition_best(struct stage_range *ranges, struct partition_result *result,
                   const struct partition_problem *problem)
{
    struct best b = {0};
    struct partition_result r = {.full_lane = -1};
    int err = partition_refuse(problem->stages, problem->layers);

    if (err)
        return err;
    int *count = calloc((size_t)problem->stages, sizeof(*count));
    err = count ? sums_init(&b.sums, problem) : log_no_memory("a partition");
    if (!err)
        err = find_best(count, &b, &r.exact);
    if (!err)
        err = report(ranges, &r, &b.sums, count);
    if (result)
        *result = r;
    free(b.cuts);
    free(b.shares);
    sums_fini(&b.sums);
    free(count);
    return err;
}
