/* The model and the lanes that options name: what inference and training begin with. */
#ifndef PENSTOCK_MACHINE_H
#define PENSTOCK_MACHINE_H

#include "runtime/engine.h"
#include "runtime/link.h"
#include "runtime/penstock.h"
#include "stages/model.h"

struct machine {
    struct place *place;
    struct lane_spec *specs; /* (n_specs) */
    int n_specs;
    struct model *model;
    bool started; /* StarPU runs */
    struct lane_set lanes;
    enum link_kind link;
    enum engine_order order;
};

/* Reads the options, the machine and the model's files; takes nothing of the lanes yet. One line for what is
 * wrong. */
int machine_open(struct machine *m, const struct penstock_options *options);

/* Starts StarPU and makes the first n lanes. */
int machine_start(struct machine *m, const struct penstock_options *options, int n);

void machine_close(struct machine *m);

/* Speed of a lane in processors, to cut stages by; rough until costs are measured. */
double machine_speed(const struct lane *lane);

#endif
