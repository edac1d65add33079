/* The folder of a run's checkpoints: DIR/checkpoint-STEP, each there as a whole or not at all. It knows names and states,
 * not what lies in the files of a checkpoint. */
#ifndef PENSTOCK_CHECKPOINT_DIR_H
#define PENSTOCK_CHECKPOINT_DIR_H

#include "kernels/base.h"

/* Where a run stands: the checkpoint's training.json. */
struct checkpoint_state {
    long step;            /* steps that were made */
    uint64_t sequences;   /* of the data's order that were used */
    uint64_t fingerprint; /* of the data, see data_fingerprint */
    uint64_t seed;        /* of the data's order */
};

int checkpoint_state_read(struct checkpoint_state *s, const char *path);
int checkpoint_state_write(const struct checkpoint_state *s, const char *path);

/* *path: a checkpoint itself, or the newest in a folder; freed by the caller. -ENOENT if there is none, -errno; one
 * line. */
int checkpoint_find(char **path, const char *name);

struct checkpoint_dir {
    char *path;
    char *source; /* the checkpoint that the run began with, which stays; or NULL */
    int lock;     /* descriptor of the folder: one run at a time */
    int keep;
    bool made; /* by this run: goes with it if nothing is in it */
};

/* Makes the folder if need be, locks it and removes what runs that were killed left in it. from: the checkpoint at step
 * `step` that the run goes on with, or NULL. Refuses a folder another run writes to, and one with checkpoints
 * unless from is one of them and there are none that are later. -EBUSY, -EEXIST, -errno; one line. */
int checkpoint_dir_open(struct checkpoint_dir *d, const char *path, int keep,
                        const char *from, long step);
/* Removes the folder if the run made it and has put nothing into it. */
void checkpoint_dir_close(struct checkpoint_dir *d);

/* A new hidden folder to write a checkpoint's files to; *path is freed by checkpoint_end. */
int checkpoint_begin(const struct checkpoint_dir *d, char **path, long step);

/* Gives the folder its name, checkpoint-STEP, when all its files are on the disk, then removes checkpoints beyond the
 * newest `keep`; or, if err says that something failed, removes it. err or -errno after a line. Frees path. */
int checkpoint_end(const struct checkpoint_dir *d, char *path, long step, int err);

/* dir/checkpoint-STEP, freed by the caller; NULL: no memory. */
char *checkpoint_path(const char *dir, long step);

#endif
