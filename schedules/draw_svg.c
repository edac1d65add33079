/* Plans as pictures. */
#include "schedules/draw.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MOST_PIXELS 16000
#define LEFT        64
#define RIGHT       24

/* Where and how large one plan's rows are. */
struct strip {
    const struct sched_plan *plan;
    const struct sched_sim *sim;
    FILE *file;
    double top, scale; /* pixels; pixels per unit of time */
    double row, gap;   /* height of a lane's row, and between two */
    double font;
};

/* Okabe and Ito's colours, the lane's first chunk in a light shade and later ones in a
 * dark one. W is lower than the others, so that kinds stay apart without colour too. */
static const char style[] =
    "<style>"
    "text{font-family:Helvetica,Arial,sans-serif;fill:#222}"
    ".n{text-anchor:middle}.e{text-anchor:end}"
    ".F0{fill:#a6d8f5}.F1{fill:#0072b2}"
    ".B0{fill:#f5b95f}.B1{fill:#c24e00}"
    ".I0{fill:#f8f0a0}.I1{fill:#e3d02a}"
    ".W0{fill:#8fd6c0}.W1{fill:#00795a}"
    ".l{fill:#fff}.o{stroke:#444;stroke-width:.5}"
    "</style>\n"
    "<defs><pattern id=\"idle\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">"
    "<rect width=\"6\" height=\"6\" fill=\"#f4f4f4\"/>"
    "<path d=\"M0 6L6 0\" stroke=\"#c4c4c4\" stroke-width=\".8\"/></pattern></defs>\n";

static const char *const legend[][2] = {{"F", "forward"},
                                        {"B", "backward"},
                                        {"I", "backward, input gradient"},
                                        {"W", "backward, weight gradient"}};

static void put_head(FILE *file, double width, double height)
{
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "viewBox=\"0 0 %.0f %.0f\">\n%s<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"#fff\"/>\n",
            width, height, width, height, style);
}

static double number_width(const struct strip *s, int number)
{
    return snprintf(NULL, 0, "%d", number) * s->font * 0.58;
}

/* A piece of an op's row, from one share of its height to another. */
static void put_op(const struct strip *s, const struct sched_op *op,
                   const struct sched_span *span, double y, double height)
{
    double x = LEFT + span->start * s->scale,
           width = (span->end - span->start) * s->scale;
    int shade = sched_draw_chunk(s->plan, op) > 0;
    const char *kind = sched_kind_name(op->kind);
    char text[SCHED_OP_TEXT];

    if (op->kind == SCHED_W) {
        y += height / 5;
        height -= height / 5;
    }
    fprintf(s->file,
            "<rect class=\"%s%d o\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
            "height=\"%.2f\"><title>%s "
            "%.6g-%.6g</title></rect>\n",
            kind, shade, x, y, width, height, sched_op_print(text, op), span->start,
            span->end);
    if (number_width(s, op->mb) + 1 > width || s->font > height)
        return;
    fprintf(s->file,
            "<text class=\"n%s\" font-size=\"%.1f\" x=\"%.2f\" y=\"%.2f\">%d</text>\n",
            shade && op->kind != SCHED_I ? " l" : "", s->font, x + width / 2,
            y + height / 2 + s->font * 0.36, (int)op->mb);
}

/* The two ops of a pair lie above each other. */
static void put_lane(const struct strip *s, int lane)
{
    const struct sched_lane *l = &s->plan->lane[lane];
    double y = s->top + lane * (s->row + s->gap);

    fprintf(s->file,
            "<rect fill=\"url(#idle)\" x=\"%d\" y=\"%.2f\" width=\"%.2f\" "
            "height=\"%.2f\"/>\n",
            LEFT, y, s->sim->makespan * s->scale, s->row);
    if (s->font <= s->row)
        fprintf(
            s->file,
            "<text class=\"e\" font-size=\"%.1f\" x=\"%d\" y=\"%.2f\">lane %d</text>\n",
            s->font, LEFT - 6, y + s->row / 2 + s->font * 0.36, lane);
    for (size_t k = 0; k < l->n; k++) {
        bool second = k && l->ops[k - 1].pair, first = l->ops[k].pair;
        if (!sched_kind_computes(l->ops[k].kind))
            continue;
        put_op(s, &l->ops[k], &s->sim->lane[lane].span[k], second ? y + s->row / 2 : y,
               first || second ? s->row / 2 : s->row);
    }
}

/* 1, 2 or 5 times a power of ten, at least 60 pixels. */
static double tick_step(double scale)
{
    double least = 60 / scale, power = pow(10, floor(log10(least)));

    if (least <= 2 * power)
        return 2 * power;
    return least <= 5 * power ? 5 * power : 10 * power;
}

static void put_axis(const struct strip *s, double longest, double bottom)
{
    double step = tick_step(s->scale);

    for (int i = 0; i * step <= longest; i++) {
        double x = LEFT + i * step * s->scale;
        fprintf(s->file,
                "<path d=\"M%.2f %.2fv5\" stroke=\"#444\"/><text class=\"n\" "
                "font-size=\"10\" "
                "x=\"%.2f\" y=\"%.2f\">%g</text>\n",
                x, bottom, x, bottom + 16, i * step);
    }
}

static void put_legend(FILE *file, double y)
{
    double x = LEFT;

    for (size_t i = 0; i < sizeof(legend) / sizeof(legend[0]); i++) {
        double low = legend[i][0][0] == 'W' ? 3 : 0;
        fprintf(
            file,
            "<rect class=\"%s0 o\" x=\"%.0f\" y=\"%.1f\" width=\"16\" "
            "height=\"%.0f\"/><rect "
            "class=\"%s1 o\" x=\"%.0f\" y=\"%.1f\" width=\"16\" height=\"%.0f\"/><text "
            "font-size=\"11\" x=\"%.0f\" y=\"%.1f\">%s: %s</text>\n",
            legend[i][0], x, y + low, 14 - low, legend[i][0], x + 16, y + low, 14 - low,
            x + 38, y + 11, legend[i][0], legend[i][1]);
        x += 56 + 5.6 * (double)snprintf(NULL, 0, "%s: %s", legend[i][0], legend[i][1]);
    }
    fprintf(file,
            "<rect fill=\"url(#idle)\" x=\"%.0f\" y=\"%.1f\" width=\"32\" "
            "height=\"14\"/><text "
            "font-size=\"11\" x=\"%.0f\" y=\"%.1f\">idle</text>\n<text font-size=\"11\" "
            "x=\"%.0f\" y=\"%.1f\">dark: a later chunk, or the second copy</text>\n",
            x, y, x + 38, y + 11, x + 80, y + 11);
}

static void put_title(const struct strip *s, const char *label, double y, double font)
{
    double peak = 0;

    for (int i = 0; i < s->sim->lanes; i++)
        peak = s->sim->lane[i].peak > peak ? s->sim->lane[i].peak : peak;
    fprintf(s->file,
            "<text font-size=\"%.1f\" x=\"%d\" y=\"%.1f\"><tspan "
            "font-weight=\"bold\">%s%s%s</tspan>  "
            "%d lanes, %d micro-batches, makespan %.6g, bubble %.1f %%, peak activations "
            "%.4g</text>\n",
            font, LEFT, y, s->plan->name, label ? ", " : "", label ? label : "",
            s->plan->lanes, s->plan->micro_batches, s->sim->makespan,
            100 * s->sim->bubble, peak);
}

/* Room for the number of a micro-batch in the shortest op. */
static double svg_scale(const struct sched_plan *plan, const struct sched_sim *sim,
                        double font)
{
    double shortest = sched_draw_shortest(plan, sim), scale;
    double digits = snprintf(NULL, 0, "%d", plan->micro_batches - 1);

    if (shortest <= 0 || sim->makespan <= 0)
        return 1;
    scale = (digits * font * 0.58 + 4) / shortest;
    return scale * sim->makespan > MOST_PIXELS ? MOST_PIXELS / sim->makespan : scale;
}

/* The legend needs this much at least. */
static double picture_width(double time, double scale)
{
    double width = LEFT + time * scale + RIGHT;

    return width < 1040 ? 1040 : width;
}

int sched_draw_svg(const struct sched_plan *plan, const struct sched_sim *sim, FILE *file)
{
    struct strip s = {.plan = plan,
                      .sim = sim,
                      .file = file,
                      .top = 40,
                      .row = 24,
                      .gap = 3,
                      .font = 11};
    double bottom = s.top + plan->lanes * (s.row + s.gap);

    s.scale = svg_scale(plan, sim, s.font);
    put_head(file, picture_width(sim->makespan, s.scale), bottom + 56);
    put_title(&s, NULL, 24, 14);
    for (int i = 0; i < plan->lanes; i++)
        put_lane(&s, i);
    put_axis(&s, sim->makespan, bottom);
    put_legend(file, bottom + 30);
    fputs("</svg>\n", file);
    return ferror(file) ? -EIO : 0;
}

static double common_scale(const struct sched_picture *p, int n, double font,
                           double *longest)
{
    double scale = 0;

    *longest = 0;
    for (int i = 0; i < n; i++) {
        if (!p[i].measured)
            scale = fmax(scale, svg_scale(p[i].plan, p[i].sim, font));
        *longest = fmax(*longest, p[i].sim->makespan);
    }
    scale = scale > 0 ? scale : 1;
    return *longest * scale > MOST_PIXELS ? MOST_PIXELS / *longest : scale;
}

int sched_draw_pictures_svg(const struct sched_picture *p, int n, FILE *file)
{
    struct strip s = {.file = file, .top = 12, .row = 18, .gap = 1, .font = 8};
    double height = 30 + 56, longest;

    s.scale = common_scale(p, n, s.font, &longest);
    for (int i = 0; i < n; i++)
        height += p[i].plan->lanes * (s.row + s.gap) + 34;
    put_head(file, picture_width(longest, s.scale), height);
    for (int i = 0; i < n; i++) {
        s.plan = p[i].plan;
        s.sim = p[i].sim;
        put_title(&s, p[i].label, s.top + 10, 12);
        s.top += 18;
        for (int lane = 0; lane < s.plan->lanes; lane++)
            put_lane(&s, lane);
        s.top += s.plan->lanes * (s.row + s.gap) + 16;
    }
    if (n)
        put_axis(&s, longest, s.top - 10);
    put_legend(file, s.top + 20);
    fputs("</svg>\n", file);
    return ferror(file) ? -EIO : 0;
}

int sched_draw_compare_svg(const struct sched_comparison *c, FILE *file)
{
    struct sched_picture *p = calloc((size_t)c->results + 1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    for (int i = 0; i < c->results; i++)
        p[i] =
            (struct sched_picture){.plan = &c->result[i].plan, .sim = &c->result[i].sim};
    int rc = sched_draw_pictures_svg(p, c->results, file);
    free(p);
    return rc;
}
