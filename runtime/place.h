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

/* Loads the topology (HWLOC_XMLFILE is honoured by hwloc itself). Processors are those that the calling process may
 * use, GPUs those that CUDA has, also if the topology describes another machine. */
int place_open(struct place **out);
void place_close(struct place *p);

/* Parses a --devices list, items separated by commas. NULL or "auto": every GPU, in the order of assign_chain, or without one, two CPU
 * lanes of half of the processors each (one lane on one processor). CPU lanes may share processors: they
 * take turns. Refuses, in one line: unknown words, no such GPU or processor, a processor twice in a lane, a GPU
 * twice, or whole and in slices. *specs (*n) is freed with lane_specs_free. */
int place_parse(struct place *p, struct lane_spec **specs, int *n, const char *list);
void lane_specs_free(struct lane_spec *specs, int n);

/* Binds the calling thread next to the lane: to the first processor of a CPU lane (its pool binds the other
 * threads itself), to the processors near the GPU otherwise. Returns 0; if the system cannot, warns once per lane,
 * and returns 0 all the same. */
int place_bind_thread(struct place *p, const struct lane_spec *spec);

/* Moves the pages of a host buffer to the lane's NUMA node before first use; warns once if it cannot. */
int place_bind_memory(struct place *p, const struct lane_spec *spec, void *buffer,
                      size_t bytes);

/* How many GPUs place_parse can name, and why if there are none. */
int place_gpus(const struct place *p);
const char *place_why_none(const struct place *p);

/* The processors that place_parse can name, near ones together. *cpus (*n) is freed by the caller. */
int place_cpus(const struct place *p, int **cpus, int *n);

/* "0-3+8" of cpus (n) in ascending order, with the separator `plus`; "..." ends what does not fit. */
void place_cpus_text(char *text, size_t size, const int *cpus, int n, char plus);

/* The NUMA node (OS number) that a lane belongs to; -1: several, or unknown. */
int place_lane_node(struct place *p, const struct lane_spec *spec);

/* What the topology says, for people. */
struct place_node {
    int index;     /* OS number */
    size_t memory; /* bytes */
    int *cpus;     /* (n_cpus) usable ones, ascending */
    int n_cpus;
};

struct place_gpu {
    char name[64]; /* "" if unknown */
    char pci[32];
    int node;      /* OS number, -1 unknown */
    int package;   /* OS number of the socket, -1 unknown */
    int sms;       /* multiprocessors, 0 unknown */
    size_t memory; /* bytes, 0 unknown */
};

struct place_machine {
    char name[128], cpu[128]; /* "" if unknown */
    bool here;                /* this machine, and not one from a file */
    int packages, cores, processors;
    size_t memory;            /* bytes */
    struct place_node *nodes; /* (n_nodes) */
    int n_nodes;
    struct place_gpu *gpus; /* (n_gpus) */
    int n_gpus;
    double
        *nvlink; /* (n_gpus, n_gpus) bytes per second; NULL: the topology does not say */
    int *
        peers; /* (n_gpus, n_gpus) the driver's rank of a direct link, 0 is the fastest, -1: none; NULL unknown */
};

int place_describe(struct place *p, struct place_machine *m);
void place_machine_free(struct place_machine *m);

/* If the topology is another machine's: from here on place_parse names the processors and GPUs of that one, for
 * a picture of it. */
void place_imagine(struct place *p);

#endif
