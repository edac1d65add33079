/* Faults that are planted to see what a run makes of them, and the search for one that came by itself.
 * PENSTOCK_FAULT is KIND:OP, or KIND:OP:SECONDS: delay:2F3:5 (the op begins that much later), hang:2F3 (it never
 * ends), nan:2F3 (what it computes has a NaN). Of training and, but for nan, of inference. */
#ifndef PENSTOCK_FAULT_H
#define PENSTOCK_FAULT_H

#include "schedules/sched.h"

enum fault_kind { FAULT_NONE, FAULT_DELAY, FAULT_HANG, FAULT_NAN };

struct fault {
    enum fault_kind kind;
    struct sched_op op;
    double seconds;
    bool checked; /* see fault_check */
};

struct op_task;
struct step;

/* From the environment. -EINVAL and one line. */
int fault_read(struct fault *f);

/* A step that has all its ops; a warning, once, if the fault is of none of them. */
void fault_check(const struct step *s);

/* On the op's worker, before it begins. */
void fault_begin(const struct op_task *o);

/* On the op's worker, after it: plants a NaN and, while the engine searches, looks at what the op wrote. -EDOM after
 * a line that names the first op whose result is not finite. */
int fault_end(const struct op_task *o);

#endif
