/* What ops and transfers cost, as the user or a measurement gives it. One unit of time
 * throughout. */
#ifndef PENSTOCK_SCHED_COSTS_H
#define PENSTOCK_SCHED_COSTS_H

#include "schedules/sched.h"

struct sched_cost {
    double f, i, w;
    double b; /* full backward; 0: i + w */
};

struct sched_link {
    int from, to;     /* lanes */
    double latency;   /* in place of the general one */
    double bandwidth; /* bytes per unit of time; 0: the general one */
};

struct sched_costs {
    /* Without rows: every lane's whole cost of one micro-batch; a stage is one of its
     * chunks. */
    struct sched_cost lane;
    /* With rows: the model, from its input to its output, in equal parts, one a row. A
     * stage costs what the part of the model that it covers costs, whatever the number of
     * stages. */
    struct sched_cost *row; /* (rows) */
    int rows;
    double pair;      /* time of an F&B pair as a share of its two ops' sum; 0: 1 */
    double latency;   /* of a hop between two lanes */
    double bytes;     /* that a hop carries */
    double bandwidth; /* bytes per unit of time; 0: infinite */
    struct sched_link *links; /* (n_links) that differ */
    int n_links;
};

/* T_F = T_I = T_W = 1, no latency. */
extern const struct sched_costs sched_costs_unit;

/* Costs of one stage of a plan with so many lanes and stages; b is always set. */
struct sched_cost sched_costs_stage(const struct sched_costs *costs, int lanes,
                                    int stages, int stage);
/* The same for all stages: (stages). */
void sched_costs_stages(struct sched_cost *out, const struct sched_costs *costs,
                        int lanes, int stages);

/* Time from the end of an op until its result has arrived on another lane; 0 within a
 * lane. */
double sched_costs_hop(const struct sched_costs *costs, int from, int to);

/* Reads a text file of lines "stage F I W [B]" (from the model's input on), "pair SHARE",
 * "latency T", "bytes N", "bandwidth R", "link FROM TO LATENCY [BANDWIDTH]"; # begins a
 * comment. -EINVAL, -ENOMEM, or what reading gave; err says which line. */
int sched_costs_read(struct sched_costs *costs, FILE *file, struct sched_error *err);
void sched_costs_fini(struct sched_costs *costs);

#endif
