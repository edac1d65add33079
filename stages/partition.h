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

/* Layers to cut, and the lanes that they go to. A lane's time and bytes are the sums over its stages. */
struct partition_problem {
    size_t layers;
    int stages, lanes;
    const int *lane; /* (stages) of each; NULL: stage s is alone on lane s */

    const double *layer_time;     /* (layers) seconds on a lane of speed 1 */
    double embed_time, head_time; /* seconds more on the first and the last stage */
    const double *speed;          /* (lanes) > 0, NULL: all 1 */

    const size_t *layer_bytes; /* (layers), NULL: 0 */
    size_t act_bytes;          /* activations of one layer and micro-batch */
    const int *live;           /* (stages) micro-batches that it holds at once; NULL: 0 */
    const size_t *fixed;       /* (stages) bytes whatever the cut, NULL: 0 */
    size_t embed_bytes, head_bytes; /* more on the first and the last stage */
    bool tied;         /* they are one table: a lane that has both ends holds it once */
    const size_t *cap; /* (lanes) most bytes, 0: any; NULL: all 0 */
};

struct partition_result {
    double slowest; /* seconds of the slowest lane */
    bool exact;     /* there is no better cut */
    int full_lane;  /* the lane that is most over its cap, -1: none */
    size_t missing; /* bytes by which it is */
};

/* ranges (stages): of the cuts that fit the one whose slowest lane takes the least time, among equals (to 1e-12) the
 * one with the smallest sum of squares of the lanes' times. -ENOSPC, without a line, if none fits: ranges and
 * result tell the cut whose fullest lane misses the least. -EINVAL, one line, for more stages than layers. result may
 * be NULL.
 *
 * Exact by dynamic programming over (layers, lanes) if every lane has one stage, or if all layers are equal: then only
 * a lane's number of layers matters, which its stages share evenly, or, if memory asks for it, so that those with
 * fewer live micro-batches have more. Other problems are searched, first locally (a layer moves between two
 * stages), then by branch and bound, against the bound that the work left flows freely to the lanes that have stages
 * left. That ends after half a million partial cuts, whereupon result->exact is false; below 20 layers it never does.
 * Measured times that differ by noise alone are better averaged. */
int partition_best(struct stage_range *ranges, struct partition_result *result,
                   const struct partition_problem *problem);

/* The same for equal layers: costs of one, the embedding and the head; speed (stages) of each one's lane, NULL: all
 * equal. Every stage counts as a lane of its own. */
int partition_by_cost(struct stage_range *ranges, int stages, size_t layers, double layer,
                      double embed, double head, const double *speed);

/* From --split "3,1": layers in these ratios, at least one each. From --layers "12,18": exactly these.
 * -EINVAL and one line if the list does not fit. */
int partition_by_ratio(struct stage_range *ranges, int stages, size_t layers,
                       const char *split);
int partition_exact(struct stage_range *ranges, int stages, size_t layers,
                    const char *list);

#endif
