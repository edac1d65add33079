/* Simulated plans as text, pictures and JSON. All return 0, or -EIO if the file could not
 * take it. */
#ifndef PENSTOCK_SCHED_DRAW_H
#define PENSTOCK_SCHED_DRAW_H

#include "schedules/compare.h"
#include "schedules/sched.h"
#include "schedules/simulate.h"

/* One row of characters per lane, time from left to right, then tables of lanes and
 * edges. colour: escape sequences for a terminal. width: characters of a line, longer
 * rows are continued below; 0: no limit. */
int sched_draw_text(const struct sched_plan *plan, const struct sched_sim *sim,
                    bool colour, int width, FILE *file);

/* One row per lane, ops coloured by kind, with their micro-batch. */
int sched_draw_svg(const struct sched_plan *plan, const struct sched_sim *sim,
                   FILE *file);

/* The trace-event format of Chrome and Perfetto; one unit of time is one millisecond. */
int sched_draw_trace(const struct sched_plan *plan, const struct sched_sim *sim,
                     FILE *file);

int sched_draw_json(const struct sched_plan *plan, const struct sched_sim *sim,
                    FILE *file);

/* One of several plans in a picture or trace. */
struct sched_picture {
    const struct sched_plan *plan;
    const struct sched_sim *sim;
    const char *label; /* said with the plan's name; NULL: nothing */
    bool measured;     /* as it ran: the scale is that of those which are not */
};

/* Above each other on one time axis; in one trace, a process each. */
int sched_draw_pictures_svg(const struct sched_picture *p, int n, FILE *file);
int sched_draw_pictures_trace(const struct sched_picture *p, int n, FILE *file);

/* Several plans of one shape. */
int sched_draw_compare_text(const struct sched_comparison *c, FILE *file);
int sched_draw_compare_svg(const struct sched_comparison *c, FILE *file);
int sched_draw_compare_json(const struct sched_comparison *c, FILE *file);

/* ---- Shared by the pictures -------------------------------------------------------- */

/* The shortest decimal that reads back as x. */
void sched_print_number(FILE *file, double x);

/* Which of its lane's chunks an op belongs to; with two copies of the weights, the
 * copy. */
int sched_draw_chunk(const struct sched_plan *plan, const struct sched_op *op);

/* Length of the shortest op that takes any time. 0: there is none. */
double sched_draw_shortest(const struct sched_plan *plan, const struct sched_sim *sim);

#endif
