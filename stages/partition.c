/* Layers to stages: by cost, by ratio, or as told. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "stages/partition_parts.h"

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

int partition_refuse(int stages, size_t layers)
{
    if (stages >= 1 && (size_t)stages <= layers)
        return 0;
    log_error("%d stages cannot share %zu layers: every stage needs at least one", stages,
              layers);
    return -EINVAL;
}

int partition_by_cost(struct stage_range *ranges, int stages, size_t layers, double layer,
                      double embed, double head, const double *speed)
{
    int err = partition_refuse(stages, layers);
    if (err)
        return err;
    double *layer_time = malloc(layers * sizeof(*layer_time));
    if (!layer_time)
        return log_no_memory("a partition");
    for (size_t i = 0; i < layers; i++)
        layer_time[i] = layer;
    err = partition_best(ranges, NULL,
                         &(struct partition_problem){.layers = layers,
                                                     .stages = stages,
                                                     .lanes = stages,
                                                     .layer_time = layer_time,
                                                     .embed_time = embed,
                                                     .head_time = head,
                                                     .speed = speed});
    free(layer_time);
    return err;
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
    int err = partition_refuse(stages, layers);
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
    int err = partition_refuse(stages, layers);
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
