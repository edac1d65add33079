/* Schedules as data. A plan says, for every lane, the ordered list of ops it performs in one step. */
#ifndef PENSTOCK_SCHED_H
#define PENSTOCK_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* KIND, letters in PyTorch's CSV grammar. 2F0 = stage 2, forward, micro-batch 0. */
#define SCHED_KIND_LIST(X)                                                               \
    X(F, "F")                                                                            \
    X(B, "B")                                                                            \
    X(I, "I")                                                                            \
    X(W, "W")                                                                            \
    X(SEND_F, "SEND_F")                                                                  \
    X(RECV_F, "RECV_F")                                                                  \
    X(SEND_B, "SEND_B")                                                                  \
    X(RECV_B, "RECV_B")                                                                  \
    X(STEP, "STEP")

enum sched_kind {
#define X(name, text) SCHED_##name,
    SCHED_KIND_LIST(X)
#undef X
        SCHED_KIND_COUNT
};

struct sched_op {
    uint8_t kind;    /* enum sched_kind */
    uint8_t pair;    /* non-zero: fused with the next op of the lane (F&B) */
    uint16_t peer;   /* SEND, RECV: the other lane; else 0 */
    int32_t stage;
    int32_t mb;      /* micro-batch */
};

struct sched_lane {
    struct sched_op *ops; /* (n) */
    size_t n, cap;
};

struct sched_plan {
    char name[32];
    int lanes;         /* p */
    int micro_batches; /* m */
    int chunks;        /* v: stages per lane */
    int stages;        /* p * v unless a file says otherwise */
    int *stage_lane;   /* (stages) lane that owns a stage */
    struct sched_lane *lane; /* (lanes) */
};
#endif
