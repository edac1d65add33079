/* Schedules as data. A plan says, for every lane, the ordered list of ops it performs in
 * one step. */
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

#define SCHED_MAX_LANES 65535 /* peer has 16 bits */

struct sched_op {
    uint8_t kind;  /* enum sched_kind */
    uint8_t pair;  /* non-zero: fused with the next op of the lane (F&B) */
    uint16_t peer; /* SEND, RECV: the other lane; else 0 */
    int32_t stage;
    int32_t mb; /* micro-batch; STEP: 0 */
};

struct sched_lane {
    struct sched_op *ops; /* (n) */
    size_t n, cap;
};

struct sched_plan {
    char name[32];
    int lanes;         /* p */
    int micro_batches; /* m */
    int chunks;        /* v: stages per lane, of one copy of the weights */
    int stages;        /* p * v unless a file says otherwise */
    int copies;      /* of the weights: 1, or 2 if the pipeline runs in both directions */
    int *stage_lane; /* (copies, stages) lane that owns a stage; copy c serves the c-th
                          part of the micro-batches, see sched_plan_lane */
    struct sched_lane *lane; /* (lanes) */
    int rc; /* first error of sched_plan_add: read once, when all is added */
};

/* Why a plan, a shape or a file was refused, in one line. -1: not about one of them. */
struct sched_error {
    char text[512];
    int lane, stage, mb;
};

/* Fills *err unless it is NULL: "lane 1, stage 2, micro-batch 3: " (what is -1 is left
 * out) and the formatted text. Returns code. */
int sched_fail(struct sched_error *err, int code, int lane, int stage, int mb,
               const char *format, ...) __attribute__((format(printf, 6, 7)));

/* ---- plan.c: the plan itself ------------------------------------------------------- */

/* An empty plan with one copy of the weights and stage s on lane s % lanes. -EINVAL,
 * -ENOMEM. */
int sched_plan_init(struct sched_plan *plan, const char *name, int lanes, int stages,
                    int micro_batches);
void sched_plan_fini(struct sched_plan *plan);

int sched_plan_push(struct sched_plan *plan, int lane, struct sched_op op);
/* Pushes onto the lane that owns the stage for this micro-batch. An error stays in
 * plan->rc, and later calls do nothing. Returns plan->rc. */
int sched_plan_add(struct sched_plan *plan, enum sched_kind kind, int stage, int mb);

/* Which of the (copies, stages) stages a micro-batch meets: an index into stage_lane. -1: none. */
int sched_plan_place(const struct sched_plan *plan, int stage, int mb);
/* The one place that says where a stage runs. -1: nowhere. */
int sched_plan_lane(const struct sched_plan *plan, int stage, int mb);

/* Ops of all lanes. */
size_t sched_plan_count(const struct sched_plan *plan);
bool sched_plan_has_comm(const struct sched_plan *plan);
int sched_plan_copy(struct sched_plan *copy, const struct sched_plan *plan);

/* F, B, I or W: it occupies the lane. */
bool sched_kind_computes(int kind);
const char *sched_kind_name(int kind);

#define SCHED_OP_TEXT 40 /* bytes that hold any printed op */

/* "2F0", "2SEND_F0", "2STEP". Returns text, a buffer of SCHED_OP_TEXT bytes. */
char *sched_op_print(char *text, const struct sched_op *op);
/* -EINVAL if the len bytes are not exactly one op. pair and peer become 0. */
int sched_op_parse(struct sched_op *op, const char *text, size_t len);

/* ---- forward.c --------------------------------------------------------------------- */

/* Inference on any map of stages to lanes, stage_lane (stages): each lane takes the
 * micro-batches in turn, and for each its own stages in ascending order. Initialises the
 * plan. */
int sched_forward(struct sched_plan *plan, int lanes, int stages, const int *stage_lane,
                  int micro_batches);

/* ---- late.c ------------------------------------------------------------------------ */

/* Of a plan with two copies of the weights: the second copy's backwards become I, and its W
 * come behind all other ops of their lanes, micro-batches ascending. By then the first copy
 * has summed the gradients of the first half of the micro-batches, and the second can go on
 * with the very same sum. Drops what does not compute, and a second copy that has no
 * micro-batch. One copy: does nothing. -ENOMEM. */
int sched_plan_late(struct sched_plan *plan);

/* ---- order.c: what must come before what ------------------------------------------- */

struct sched_step_op {
    int lane;
    size_t index; /* in the lane */
};

/* Calls visit for every op, each after all ops it depends on: the earlier ops of its
 * lane, the ops whose results it reads, for RECV its SEND. Lanes advance side by side,
 * one op (or F&B pair) a turn. Ends early, with visit's result, if that is not 0.
 * -EDEADLK if the plan cannot run: err shows the cycle. O(ops). */
int sched_walk(const struct sched_plan *plan,
               int (*visit)(void *user, int lane, size_t index), void *user,
               struct sched_error *err);

/* That order as a list. out: (sched_plan_count(plan)). */
int sched_order(const struct sched_plan *plan, struct sched_step_op *out,
                struct sched_error *err);

/* ---- comm.c: transfers as ops ------------------------------------------------------ */

/* Removes what SEND and RECV ops there are, and inserts one pair of them for every result
 * that another lane reads: SEND behind the op (or F&B pair) that produced it, RECV where
 * the other lane stands at that moment. Between any two lanes both see all transfers in
 * the same order. */
int sched_comm_insert(struct sched_plan *plan, struct sched_error *err);
void sched_comm_remove(struct sched_plan *plan);

#endif
