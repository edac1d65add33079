/* What penstock_topo finds out, for the two ways of showing it. */
#ifndef PENSTOCK_TOPO_H
#define PENSTOCK_TOPO_H

#include <stdio.h>

#include "runtime/lane.h"
#include "runtime/link.h"
#include "runtime/place.h"

/* One kind of link between two lanes, measured in one direction. A transfer takes latency + bytes / bandwidth. */
struct topo_link {
    int from, to; /* lanes */
    enum link_kind kind;
    bool picked; /* what `auto` takes */
    bool failed;
    double latency;   /* seconds */
    double bandwidth; /* bytes per second */
};

struct topo {
    struct place *place;
    struct place_machine machine;
    struct lane_spec *specs; /* (n_lanes) */
    struct lane *lanes;      /* (n_lanes); without contexts or memory */
    int *nodes;              /* (n_lanes) OS number, -1 unknown */
    int n_lanes;
    int *
        peers; /* (n_gpus, n_gpus) the driver's rank of a direct link, -1: none; or NULL */
    struct topo_link *links; /* (n_links) */
    int n_links;
    bool neighbours; /* only links from a lane to the next are measured */
};

void topo_print(FILE *f, const struct topo *t);
void topo_draw(FILE *f, const struct topo *t);

/* The picked link between two lanes, NULL: not measured. */
const struct topo_link *topo_link_between(const struct topo *t, int from, int to);

#endif
