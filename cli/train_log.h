/* The log of a training run: a JSON line per step. */
#ifndef PENSTOCK_TRAIN_LOG_H
#define PENSTOCK_TRAIN_LOG_H

#include <stdbool.h>
#include <stdio.h>

#include "cli/progress.h"
#include "runtime/penstock.h"

struct train_log {
    const char *name;          /* "-": stdout; NULL: no log */
    bool append;               /* to what the file has; else it is begun anew */
    FILE *f;                   /* NULL until the first line */
    bool failed;               /* said so; no more lines */
    struct progress *progress; /* borrowed; taken away before an error is told */
};

bool train_log_is_stdout(const struct train_log *l);

/* Whether the log can be written, asked before work that takes long: nothing is made or changed. Refuses the files
 * (n, any of them NULL) that the run reads, and those of a model's folder. -EINVAL after a line. */
int train_log_check(const struct train_log *l, const char *const *inputs, size_t n);

/* Writes a step's line; it is in the file when this returns. -errno after a line, the first time. */
int train_log_step(struct train_log *l, const struct penstock_train_step *s);

/* -EIO if any of the log could not be written. */
int train_log_close(struct train_log *l);

#endif
