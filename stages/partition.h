/* Cuts a model's layers into stages. Every layer belongs to exactly one stage, no stage is empty. */
#ifndef PENSTOCK_PARTITION_H
#define PENSTOCK_PARTITION_H

#include "stages/model.h"
#include "stages/stage.h"

/* Work that the cost of a stage is counted for. Rows are (token, pass) pairs; few rows cost as much as
 * a whole pass over the weights, which floor_rows says in rows. */
struct partition_work {
    double layer_rows;   /* rows that pass every layer */
    double head_rows;    /* rows that pass the head */
    double mean_context; /* keys that a row attends to on average */
};

/* Cost in multiply-adds of one layer, the embedding and the head for that work. */
void partition_costs(const struct model_config *c, const struct partition_work *work,
                     double *layer, double *embed, double *head);

/* ranges (stages): the cut that minimises the slowest stage's cost / speed[s] (speed NULL: all equal), exactly,
 * by dynamic programming over (layers, stages); among equals the one with the smallest sum of squares. -EINVAL,
 * one line, for more stages than layers. */
int partition_by_cost(struct stage_range *ranges, int stages, size_t layers, double layer,
                      double embed, double head, const double *speed);

/* From --split "3,1": layers in these ratios, at least one each. From --layers "12,18": exactly these.
 * -EINVAL and one line if the list does not fit. */
int partition_by_ratio(struct stage_range *ranges, int stages, size_t layers,
                       const char *split);
int partition_exact(struct stage_range *ranges, int stages, size_t layers,
                    const char *list);

#endif
