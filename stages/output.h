/* A file that is being written. A regular file is written beside its name, then synced and renamed: it
 * is whole or as it was. Links are followed and stay; permissions stay. What is no regular file (a pipe,
 * a terminal) and what a descriptor's name stands for (/dev/stdout) are written in place. */
#ifndef PENSTOCK_OUTPUT_H
#define PENSTOCK_OUTPUT_H

#include <stdio.h>

struct output {
    FILE *f;
    const char *path; /* borrowed */
    char *target;     /* path with its links followed */
    char *temporary;  /* NULL: the target is written in place */
};

/* Begins a file; path must outlive o. -errno after a line. */
int output_open(struct output *o, const char *path);

/* Ends it. err: what went wrong so far; without error the file takes its name, else nothing is left of
 * it. err or -errno after a line. */
int output_close(struct output *o, int err);

/* Ends it without a line; nothing is left of it. */
void output_drop(struct output *o);

/* Whether output_open can begin, leaving the file as it is and without waiting for a pipe's reader.
 * -errno after a line. */
int output_check(const char *path);

#endif
