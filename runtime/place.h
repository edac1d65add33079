/* The machine as hwloc sees it: which lanes it offers, and where a lane's threads and pinned
 * buffers belong. The only module that includes hwloc. */
#ifndef PENSTOCK_PLACE_H
#define PENSTOCK_PLACE_H

#include "kernels/base.h"

enum lane_kind { LANE_CPU, LANE_CUDA };

/* A lane as --devices names it. "cuda:0" one lane; "cuda:0/4" four, named "cuda:0/4.0" ..
 * "cuda:0/4.3"; "cpu:0-7", "cpu:0+2+4" one lane of those processors (OS numbers, as taskset has
 * them). */
struct lane_spec {
    enum lane_kind kind;
    char name[64];
    int device;          /* CUDA ordinal, else -1 */
    int slice, n_slices; /* of a GPU; 0, 1 if it is whole */
    int *cpus;           /* (n_cpus) OS processor numbers of a CPU lane */
    int n_cpus;
};

struct place;

/* Loads the topology (HWLOC_XMLFILE is honoured by hwloc itself). */
int place_open(struct place **out);
void place_close(struct place *p);

/* Parses a --devices list, items separated by commas. NULL or "auto": every GPU, or without one, two CPU
 * lanes of half of the processors each (one lane on one processor). Refuses, in one line: unknown words,
 * no such GPU or processor, a processor or GPU in two lanes, a GPU whole and in slices. *specs (*n) is freed with
 * lane_specs_free. */
int place_parse(struct place *p, struct lane_spec **specs, int *n, const char *list);
void lane_specs_free(struct lane_spec *specs, int n);

/* Binds the calling thread next to the lane: to the first processor of a CPU lane (its pool binds the other
 * threads itself), to the processors near the GPU otherwise. Returns 0; if the system cannot, warns once per lane,
 * and returns 0 all the same. */
int place_bind_thread(struct place *p, const struct lane_spec *spec);

/* Moves the pages of a host buffer to the lane's NUMA node before first use; warns once if it cannot. */
int place_bind_memory(struct place *p, const struct lane_spec *spec, void *buffer,
                      size_t bytes);

#endif
