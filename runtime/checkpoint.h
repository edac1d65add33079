/* A trainer's weights and optimizer state as a checkpoint: a Hugging Face folder of the model, and beside its weights
 * optimizer.safetensors with m.NAME, v.NAME and, where the lanes compute in less than fp32, master.NAME of every
 * parameter. */
#ifndef PENSTOCK_CHECKPOINT_H
#define PENSTOCK_CHECKPOINT_H

#include "runtime/training.h"
#include "stages/checkpoint_dir.h"

/* Writes a complete checkpoint into the folder. -ENOSPC, -errno after a line: nothing of it is left. */
int checkpoint_write(const struct checkpoint_dir *d, struct training *t,
                     const struct checkpoint_state *state);

/* The optimizer's state and the master weights of a checkpoint whose model the trainer has loaded. -EINVAL after a line
 * for a file that does not fit the model. */
int checkpoint_read(struct training *t, const char *path);

#endif
