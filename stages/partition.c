/* Layers to stages: by cost, by ratio, or as told. */
#include "stages/partition.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

void partition_costs(const struct model_config *c, const struct partition_work *work,
                     double *layer, double *embed, double *head)
{
    double qkv = (double)(c->H + 2 * c->K) * c->D * c->C;
    double linear = qkv + (double)c->H * c->D * c->C + 3.0 * c->C * c->F;
    double attention = 2.0 * c->H * c->D * work->mean_context;

    *layer = work->layer_rows * (linear + attention);
    *embed = work->layer_rows * c->C;
    *head = work->head_rows * (double)c->V * c->C;
}

/* The best way to put the first i layers on the first s stages: its slowest stage, the sum of
 * squares of its stages, and how many layers the last of them has. */
struct cut {
    double slowest, squares;
    size_t last;
};

static int refuse_stages(int stages, size_t layers)
{
    if (stages >= 1 && (size_t)stages <= layers)
        return 0;
    log_error("%d stages cannot share %zu layers: every stage needs at least one", stages,
              layers);
    return -EINVAL;
}

/* The best cut of the first i layers whose last stage has `extra` cost and speed v; before: the
 * best cuts on one stage less. Without a limit the slowest stage decides, else the squares of
 * the cuts that have no stage slower than the limit. */
static struct cut best_cut(const struct cut *before, size_t i, double layer, double extra,
                           double v, double limit)
{
    struct cut best = {INFINITY, INFINITY, 0};
    for (size_t n = 1; n <= i; n++) {
        double t = (n * layer + extra) / v;
        struct cut c = {fmax(before[i - n].slowest, t), before[i - n].squares + t * t, n};
        if (c.slowest > limit)
            continue;
        if (isinf(limit) ? c.slowest < best.slowest : c.squares < best.squares)
            best = c;
    }
    return best;
}

/* cost: of a layer, the embedding, the head. Returns the slowest stage of the best cut. */
static double fill_cuts(struct cut *best, int stages, size_t layers, const double cost[3],
                        const double *speed, double limit)
{
    for (size_t i = 0; i <= layers; i++)
        best[i] = (struct cut){i ? INFINITY : 0, i ? INFINITY : 0, 0};
    for (int s = 1; s <= stages; s++) {
        double extra = (s == 1 ? cost[1] : 0) + (s == stages ? cost[2] : 0);
        for (size_t i = 0; i <= layers; i++)
            best[s * (layers + 1) + i] = best_cut(best + (s - 1) * (layers + 1), i, cost[0],
                                                  extra, speed ? speed[s - 1] : 1, limit);
    }
    return best[stages * (layers + 1) + layers].slowest;
}

int partition_by_cost(struct stage_range *ranges, int stages, size_t layers, double layer,
                      double embed, double head, const double *speed)
{
    const double same = 1 + 1e-12;
    double cost[3] = {layer, embed, head};
    int err = refuse_stages(stages, layers);
    if (err)
        return err;
    struct cut *best = calloc((size_t)(stages + 1) * (layers + 1), sizeof(*best));
    if (!best)
        return log_no_memory("a partition");
    double slowest = fill_cuts(best, stages, layers, cost, speed, INFINITY);
    fill_cuts(best, stages, layers, cost, speed, slowest * same);
    size_t end = layers;
    for (int s = stages; s >= 1; s--) {
        size_t n = best[s * (layers + 1) + end].last;
        ranges[s - 1] = (struct stage_range){(int)(end - n), (int)n};
        end -= n;
    }
    free(best);
    return 0;
}

/* Reads exactly n positive numbers separated by commas. */
static int parse_list(double *out, int n, const char *list, const char *flag, bool whole)
{
    const char *s = list;
    for (int i = 0; i < n; i++) {
        char *end;
        out[i] = strtod(s, &end);
        bool last = i == n - 1;
        if (end == s || !(out[i] > 0) || out[i] > 1e6 ||
            (whole && out[i] != floor(out[i])) || *end != (last ? '\0' : ',')) {
            log_error("%s %s: expected %d positive %s, one for each stage", flag, list, n,
                      whole ? "whole numbers" : "numbers");
            return -EINVAL;
        }
        s = end + 1;
    }
    return 0;
}

int partition_by_ratio(struct stage_range *ranges, int stages, size_t layers,
                       const char *split)
{
    int err = refuse_stages(stages, layers);
    double *ratio = calloc(stages > 0 ? stages : 1, sizeof(*ratio)), sum = 0, so_far = 0;
    if (!ratio)
        return log_no_memory("a partition");
    if (!err)
        err = parse_list(ratio, stages, split, "--split", false);
    for (int i = 0; i < stages; i++)
        sum += ratio[i];
    int first = 0;
    for (int i = 0; i < stages && !err; i++) {
        so_far += ratio[i];
        int end = (int)lround(so_far / sum * layers);
        int most = (int)layers - (stages - 1 - i);
        end = end < first + 1 ? first + 1 : end > most ? most : end;
        ranges[i] = (struct stage_range){first, end - first};
        first = end;
    }
    free(ratio);
    return err;
}

int partition_exact(struct stage_range *ranges, int stages, size_t layers,
                    const char *list)
{
    int err = refuse_stages(stages, layers);
    double *count = calloc(stages > 0 ? stages : 1, sizeof(*count)), sum = 0;
    if (!count)
        return log_no_memory("a partition");
    if (!err)
        err = parse_list(count, stages, list, "--layers", true);
    for (int i = 0; i < stages && !err; i++) {
        ranges[i] = (struct stage_range){(int)sum, (int)count[i]};
        sum += count[i];
    }
    if (!err && sum != layers) {
        log_error("--layers %s: adds up to %.0f, the model has %zu layers", list, sum,
                  layers);
        err = -EINVAL;
    }
    free(count);
    return err;
}
