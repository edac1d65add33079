/* The best cut of unequal layers where lanes hold several stages: what one stage takes, another of its lane can no
 * longer. Local search, then branch and bound from what that found. */
#include <math.h>
#include <stdlib.h>

#include "stages/partition_parts.h"

#define MOST_TRIED 500000 /* parts of cuts; a few hundredths of a second */

struct search {
    const struct partition_sums *sums;
    int *last_stage;       /* (lanes) the lane's last one, -1 none */
    double *work, *bytes;  /* (lanes) so far */
    int *count, *best_cut; /* (stages) layers */
    struct partition_score best;
    long tried;
};

/* Equal within rounding is not better. */
static bool is_better(const struct partition_score *a, const struct partition_score *b)
{
    if (a->excess > 0 || b->excess > 0)
        return a->excess < b->excess;
    if (a->slowest * PARTITION_SAME < b->slowest)
        return true;
    return a->slowest <= b->slowest * PARTITION_SAME &&
           a->squares * PARTITION_SAME < b->squares;
}

/* Puts `count` layers from `first` on a stage. */
static void load_stage(struct search *s, int stage, size_t first, int count)
{
    const struct partition_problem *p = s->sums->p;
    int lane = partition_lane(p, stage);
    size_t end = first + (size_t)count;

    s->work[lane] += s->sums->work[end] - s->sums->work[first];
    s->bytes[lane] += s->sums->bytes[end] - s->sums->bytes[first];
    if (p->live)
        s->bytes[lane] += (double)p->live[stage] * count * (double)p->act_bytes;
}

/* What a cut can still become that has so far put the layers before `done` on the stages before `next`: the work that
 * is left flows freely to the lanes that have stages left. The score itself if nothing is left. */
static struct partition_score bound(const struct search *s, int next, size_t done)
{
    const struct partition_problem *p = s->sums->p;
    double left = s->sums->work[p->layers] - s->sums->work[done];
    double speeds = 0, squared = 0;
    struct partition_score b = {0};

    for (int lane = 0; lane < p->lanes; lane++) {
        double speed = partition_speed(p, lane), time = s->work[lane] / speed;
        b.excess = fmax(b.excess, partition_excess(p, lane, s->bytes[lane]));
        b.slowest = fmax(b.slowest, time);
        if (s->last_stage[lane] < next) {
            b.squares += time * time;
            continue;
        }
        left += s->work[lane];
        speeds += speed;
        squared += speed * speed;
    }
    if (speeds > 0) {
        b.slowest = fmax(b.slowest, left / speeds);
        b.squares += left * left / squared;
    }
    return b;
}

static void load_nothing(struct search *s)
{
    for (int lane = 0; lane < s->sums->p->lanes; lane++) {
        s->work[lane] = s->sums->lane_work[lane];
        s->bytes[lane] = s->sums->lane_bytes[lane];
    }
}

static struct partition_score score(struct search *s, const int *count)
{
    const struct partition_problem *p = s->sums->p;
    size_t first = 0;

    load_nothing(s);
    for (int i = 0; i < p->stages; first += (size_t)count[i++])
        load_stage(s, i, first, count[i]);
    return bound(s, p->stages, p->layers);
}

/* Whether the best cut gets better with one layer less on stage `from` and one more on `to`; the stages between
 * shift by a layer. */
static bool move_layer(struct search *s, int from, int to)
{
    int *count = s->best_cut;

    if (from == to || count[from] == 1)
        return false;
    count[from]--;
    count[to]++;
    struct partition_score now = score(s, count);
    if (is_better(&now, &s->best)) {
        s->best = now;
        return true;
    }
    count[from]++;
    count[to]--;
    return false;
}

static void climb(struct search *s)
{
    int stages = s->sums->p->stages;

    for (bool moved = true; moved;) {
        moved = false;
        for (int from = 0; from < stages; from++)
            for (int to = 0; to < stages; to++)
                moved |= move_layer(s, from, to);
    }
}

/* Tries every cut that puts the layers from `first` on the stages from `stage`, but those that cannot be better than
 * the best so far. */
static void branch(struct search *s, int stage, size_t first)
{
    const struct partition_problem *p = s->sums->p;
    int lane = partition_lane(p, stage), later = p->stages - 1 - stage;
    int most = (int)(p->layers - first) - later;
    double work = s->work[lane], bytes = s->bytes[lane];

    for (int n = later ? 1 : most; n <= most && s->tried < MOST_TRIED; n++) {
        s->tried++;
        s->count[stage] = n;
        load_stage(s, stage, first, n);
        struct partition_score b = bound(s, stage + 1, first + (size_t)n);
        if (!is_better(&b, &s->best))
            ;
        else if (later)
            branch(s, stage + 1, first + (size_t)n);
        else {
            s->best = b;
            for (int i = 0; i < p->stages; i++)
                s->best_cut[i] = s->count[i];
        }
        s->work[lane] = work;
        s->bytes[lane] = bytes;
    }
}

int partition_search(const struct partition_sums *sums, int *count, bool *exact)
{
    const struct partition_problem *p = sums->p;
    size_t lanes = (size_t)p->lanes;
    struct search s = {
        .sums = sums,
        .last_stage = calloc(lanes, sizeof(int)),
        .work = calloc(2 * lanes, sizeof(double)),
        .count = calloc((size_t)p->stages, sizeof(int)),
        .best_cut = count,
    };
    int err = s.last_stage && s.work && s.count ? 0 : log_no_memory("a partition");

    if (!err) {
        s.bytes = s.work + lanes;
        for (int i = 0; i < p->lanes; i++)
            s.last_stage[i] = -1;
        for (int i = 0; i < p->stages; i++)
            s.last_stage[partition_lane(p, i)] = i;
        s.best = score(&s, count);
        climb(&s);
        load_nothing(&s);
        branch(&s, 0, 0);
        *exact = s.tried < MOST_TRIED;
    }
    free(s.last_stage);
    free(s.work);
    free(s.count);
    return err;
}
