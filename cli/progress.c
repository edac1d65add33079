/* One line that is drawn over itself. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH  40
#define INTERVAL_S 0.1

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

void progress_init(struct progress *p)
{
    *p = (struct progress){.lock = PTHREAD_MUTEX_INITIALIZER,
                           .terminal = isatty(STDERR_FILENO)};
}

static void erase(struct progress *p)
{
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    p->drawn = false;
}

void progress_show(void *user, const char *what, double done)
{
    struct progress *p = user;
    char bar[BAR_WIDTH + 1];

    if (!p->terminal)
        return;
    pthread_mutex_lock(&p->lock);
    if (done >= 1) {
        erase(p);
    } else if (now() - p->drawn_at >= INTERVAL_S) {
        int full = (int)((done < 0 ? 0 : done) * BAR_WIDTH);
        memset(bar, '#', full);
        memset(bar + full, '.', BAR_WIDTH - full);
        bar[BAR_WIDTH] = '\0';
        fprintf(stderr, "\r%-8s [%s] %3.0f %%", what, bar, done * 100);
        p->drawn = true;
        p->drawn_at = now();
    }
    pthread_mutex_unlock(&p->lock);
}

void progress_line(struct progress *p, const char *text)
{
    pthread_mutex_lock(&p->lock);
    if (p->terminal && now() - p->drawn_at >= INTERVAL_S) {
        fprintf(stderr, "\r\033[K%s", text);
        fflush(stderr);
        p->drawn = true;
        p->drawn_at = now();
    }
    pthread_mutex_unlock(&p->lock);
}

void progress_clear(struct progress *p)
{
    pthread_mutex_lock(&p->lock);
    erase(p);
    pthread_mutex_unlock(&p->lock);
}
