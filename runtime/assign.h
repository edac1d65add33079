/* Which GPU gets which lane of a pipeline, by the links between them. */
#ifndef PENSTOCK_ASSIGN_H
#define PENSTOCK_ASSIGN_H

#include "runtime/place.h"

/* order (p): GPUs of the machine for the lanes 0 .. p-1, of which each hands on to the next, and with `ring` also the
 * last to the first. Of all chains the one whose slowest link is fastest; among those the one with the fewest steps
 * that lack a direct link, then with the fewest to another NUMA node or socket; then the one with the larger sum of its
 * links; then the lowest numbers. Exact by dynamic programming over sets of GPUs (Held and Karp) up to 16 of them; more
 * are taken in the order of their numbers. *basis: in a few words what decided. -EINVAL, one line, for more lanes
 * than GPUs. */
int assign_chain(int *order, const char **basis, const struct place_machine *m, int p,
                 bool ring);

#endif
