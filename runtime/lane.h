/* A lane: one row of a plan and the device that runs it. */
#ifndef PENSTOCK_LANE_H
#define PENSTOCK_LANE_H

#include "kernels/arena.h"
#include "runtime/place.h"

struct device_slices;

struct lane {
    int index;
    struct lane_spec spec;  /* borrowed arrays */
    struct kernel_ctx *ctx; /* what its kernels run in */
    void *stream;           /* CUDA: the lane's stream; NULL on the CPU */
    int sms;                /* CUDA: multiprocessors */
    struct arena arena;     /* its memory, made by the engine when the bytes are known */
    int worker;             /* StarPU worker that runs its ops, set by task.c */
    int transfer_worker;    /* StarPU worker that runs transfers to and from it */
};

/* The lanes of one run and the slices behind them. */
struct lane_set {
    struct lane *lanes; /* (n) */
    int n;
    struct device_slices **slices; /* (n_slices): one per GPU */
    int n_slices;
};

/* dtype: DTYPE_F32 or DTYPE_BF16; a CPU lane is always fp32. */
int lane_set_create(struct lane_set *set, const struct lane_spec *specs, int n,
                    enum dtype dtype);
void lane_set_destroy(struct lane_set *set);

/* Bytes of the lane's arena that memory is in use for: on a CPU, pages that were touched. */
size_t lane_resident(const struct lane *lane);

#endif
