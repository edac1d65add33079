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
    int *chain; /* (n_gpus) in the order of lanes; NULL: there is one, or none */
    const char *chain_basis; /* what decided */
    struct topo_link *links; /* (n_links) */
    int n_links;
    bool neighbours; /* only links from a lane to the next are measured */
};

/* "cuda:0,cuda:2", as --devices takes it. */
void topo_put_chain(FILE *f, const struct topo *t);
void topo_print(FILE *f, const struct topo *t);
void topo_draw(FILE *f, const struct topo *t);

/* The picked link between two lanes, NULL: not measured. */
const struct topo_link *topo_link_between(const struct topo *t, int from, int to);

#endif
