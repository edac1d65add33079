/* Plans in the CSV of PyTorch's pipelining: one row per lane, cells such as 2F0. */
#ifndef PENSTOCK_SCHED_CSV_H
#define PENSTOCK_SCHED_CSV_H

#include "schedules/sched.h"

/* One row per lane, F&B pairs as (0F1;3B0)OVERLAP_F_B. Behind SEND ops, if there are any,
 * come the WAIT_SEND ops that PyTorch asks for: of a forward's behind the stage's
 * backward, of the others' at the end. 0, or -EIO. */
int sched_csv_write(const struct sched_plan *plan, FILE *file);

/* Reads a plan of any origin; it still has to pass sched_check. The number of lanes is
 * that of the rows; stages are where most of their ops are, in two copies of the weights
 * if the two halves of the micro-batches run all stages on different lanes. micro_batches
 * 0: as many as the file names. Empty cells and ops that only concern sharded weights or
 * buffers (UNSHARD, RESHARD, REDUCE_GRAD, WAIT_...) are skipped. -EINVAL with line and
 * cell in err, -ENOMEM. */
int sched_csv_parse(struct sched_plan *plan, const char *text, size_t len,
                    int micro_batches, struct sched_error *err);
int sched_csv_read(struct sched_plan *plan, FILE *file, int micro_batches,
                   struct sched_error *err);

#endif
