/* A progress bar on stderr, only where that is a terminal. */
#ifndef PENSTOCK_PROGRESS_H
#define PENSTOCK_PROGRESS_H

#include <pthread.h>
#include <stdbool.h>

struct progress {
    pthread_mutex_t lock;
    double drawn_at; /* seconds */
    bool terminal, drawn;
};

void progress_init(struct progress *p);

/* Fits penstock_options.progress; user is a struct progress, done in 0..1. Redraws at most ten times a
 * second. Any thread. */
void progress_show(void *user, const char *what, double done);

/* Draws a line of text in the bar's place, as often. */
void progress_line(struct progress *p, const char *text);

/* Takes the bar away, before anything else is printed. */
void progress_clear(struct progress *p);

#endif
