/* The machine as a picture: a box per NUMA node with its processors and GPUs, coloured by lane; below
 * it a table of the links. */
#include "runtime/topo.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define GIB       1073741824.0
#define WIDTH     960
#define MARGIN    28
#define GAP       16  /* between boxes */
#define PAD       16  /* inside a box */
#define CARD      86  /* height of a GPU */
#define LABEL     130 /* of a row of the table */
#define MOST_CELL 68

static const char *const palette[] = {
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2",
    "#d4a72c", "#9c755f", "#ff9da7", "#5b8c9e", "#8a6fbf", "#7f9c3d",
};

struct canvas {
    FILE *f;
    const struct topo *t;
    double y; /* how far down it is drawn */
};

static const char *lane_colour(int lane)
{
    return palette[(size_t)lane % ARRAY_LEN(palette)];
}

static void rect(FILE *f, double x, double y, double w, double h, const char *look)
{
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" %s/>\n", x, y,
            w, h, look);
}

static void put_escaped(FILE *f, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            fprintf(f, "&#%d;", c);
        else
            fputc(c < 0x20 || c > 0x7e ? '?' : c, f);
    }
}

/* Text at (x, y), of a class of the style sheet. */
static void __attribute__((format(printf, 5, 6)))
label(FILE *f, double x, double y, const char *class, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    put_escaped(f, text);
    fputs("</text>\n", f);
}

/* The lane that has a processor; -1: none. */
static int lane_of_cpu(const struct topo *t, int cpu)
{
    for (int i = 0; i < t->n_lanes; i++)
        for (int k = 0; k < t->specs[i].n_cpus; k++)
            if (t->specs[i].cpus[k] == cpu)
                return i;
    return -1;
}

/* ---- Nodes ------------------------------------------------------------------------------------ */

/* Squares of a node's processors, as many in a row as fit. Returns their height. */
static double draw_cpus(FILE *f, const struct topo *t, const struct place_node *n,
                        double x, double y, double width)
{
    double cell = n->n_cpus > 64 ? 13 : 22, step = cell + 3;
    int per_row = (int)((width + 3) / step), rows = (n->n_cpus + per_row - 1) / per_row;

    for (int i = 0; i < n->n_cpus; i++) {
        double cx = x + step * (i % per_row), cy = y + step * (double)(i / per_row);
        int lane = lane_of_cpu(t, n->cpus[i]);
        char look[64];
        snprintf(look, sizeof(look), "rx=\"3\" fill=\"%s\"",
                 lane < 0 ? "#d9dde3" : lane_colour(lane));
        rect(f, cx, cy, cell, cell, look);
        if (cell > 20)
            label(f, cx + cell / 2, cy + 15, lane < 0 ? "cpu" : "cpu on", "%d",
                  n->cpus[i]);
    }
    return rows * step;
}

/* A strip along the foot of a GPU, one piece per lane. */
static void draw_gpu_lanes(FILE *f, const struct topo *t, int gpu, double x, double y,
                           double width)
{
    for (int i = 0; i < t->n_lanes; i++) {
        const struct lane_spec *s = &t->specs[i];
        char look[64];
        if (s->kind != LANE_CUDA || s->device != gpu)
            continue;
        double w = width / s->n_slices, left = x + w * s->slice;
        bool whole = w > 7.0 * (double)strlen(s->name);
        snprintf(look, sizeof(look), "fill=\"%s\" stroke=\"#fff\"", lane_colour(i));
        rect(f, left, y, w, 22, look);
        if (whole)
            label(f, left + w / 2, y + 15, "lane", "%s", s->name);
        else if (w > 20)
            label(f, left + w / 2, y + 15, "lane", ".%d", s->slice);
    }
}

static void draw_gpu(FILE *f, const struct topo *t, int gpu, double x, double y,
                     double width)
{
    const struct place_gpu *g = &t->machine.gpus[gpu];
    int most = (int)((width - 16) / 7.4);
    double line = y + 35;
    char text[96] = "";

    rect(f, x, y, width, CARD, "rx=\"6\" fill=\"#fff\" stroke=\"#b9c0ca\"");
    label(f, x + 8, y + 18, "name", "%d %.*s", gpu, most - 3, *g->name ? g->name : "GPU");
    if (g->sms)
        snprintf(text, sizeof(text), "%d SMs", g->sms);
    if (g->memory)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%.0f GiB",
                 *text ? ", " : "", (double)g->memory / GIB);
    if (*text) {
        label(f, x + 8, line, "small", "%s", text);
        line += 16;
    }
    label(f, x + 8, line, "small", "%s", g->pci);
    draw_gpu_lanes(f, t, gpu, x + 1, y + CARD - 24, width - 2);
}

/* The GPUs of a node. Returns their height. */
static double draw_gpus(FILE *f, const struct topo *t, int node, double x, double y,
                        double width)
{
    int per_row = (int)((width + 8) / 200), drawn = 0;
    double card = (width - 8.0 * (per_row - 1)) / per_row;

    for (int i = 0; i < t->machine.n_gpus; i++) {
        if (t->machine.gpus[i].node != node)
            continue;
        draw_gpu(f, t, i, x + (card + 8) * (drawn % per_row),
                 y + (CARD + 8.0) * (double)(drawn / per_row), card);
        drawn++;
    }
    return (drawn + per_row - 1) / per_row * (CARD + 8.0);
}

/* One box: a node, or, with n NULL, the GPUs that are near no single one. Returns its height. */
static double draw_box(FILE *f, const struct topo *t, const struct place_node *n,
                       double x, double y, double width)
{
    double inner = width - 2 * PAD, at = y + 44;

    if (n) {
        label(f, x + PAD, y + 26, "head", "node %d", n->index);
        label(f, x + width - PAD, y + 26, "small right", "usable processors %d, %.1f GiB",
              n->n_cpus, (double)n->memory / GIB);
        at += draw_cpus(f, t, n, x + PAD, at, inner);
    } else {
        label(f, x + PAD, y + 26, "head", "GPUs near no single node");
    }
    at += draw_gpus(f, t, n ? n->index : -1, x + PAD, at + 4, inner);
    return at + PAD - y;
}

/* The height is known once the contents are drawn, and the frame belongs under them. */
static double measure_box(const struct topo *t, const struct place_node *n, double width)
{
    FILE *nowhere = fopen("/dev/null", "w");
    double height = nowhere ? draw_box(nowhere, t, n, 0, 0, width) : 0;

    if (nowhere)
        fclose(nowhere);
    return height;
}

static bool worth_a_box(const struct place_node *n)
{
    return n->n_cpus > 0 || n->memory > 0;
}

static bool has_stray_gpus(const struct place_machine *m)
{
    for (int i = 0; i < m->n_gpus; i++)
        if (m->gpus[i].node < 0)
            return true;
    return false;
}

/* A box with its frame under it. Returns its height. */
static double draw_framed(struct canvas *c, const struct place_node *n, double x,
                          double width)
{
    double height = measure_box(c->t, n, width);

    rect(c->f, x, c->y, width, height, "rx=\"10\" fill=\"#f4f6f8\" stroke=\"#cfd5dd\"");
    return draw_box(c->f, c->t, n, x, c->y, width);
}

/* Boxes of nodes two in a row; then one of the GPUs that belong to none. */
static void draw_nodes(struct canvas *c)
{
    const struct place_machine *m = &c->t->machine;
    int boxes = 0, drawn = 0;
    double row = 0, full = WIDTH - 2.0 * MARGIN;

    for (int i = 0; i < m->n_nodes; i++)
        boxes += worth_a_box(&m->nodes[i]);
    double width = boxes > 1 ? (full - GAP) / 2 : full;
    for (int i = 0; i < m->n_nodes; i++) {
        bool right = boxes > 1 && drawn % 2;
        if (!worth_a_box(&m->nodes[i]))
            continue;
        double height =
            draw_framed(c, &m->nodes[i], right ? MARGIN + width + GAP : MARGIN, width);
        row = height > row ? height : row;
        drawn++;
        if (right || drawn == boxes) {
            c->y += row + GAP;
            row = 0;
        }
    }
    if (has_stray_gpus(m))
        c->y += draw_framed(c, NULL, MARGIN, full) + GAP;
}

/* Names and colours of CPU lanes; GPU lanes carry theirs. */
static void draw_legend(struct canvas *c)
{
    double x = MARGIN;

    for (int i = 0; i < c->t->n_lanes; i++) {
        const struct lane_spec *s = &c->t->specs[i];
        double width = 34 + 7.2 * (double)strlen(s->name);
        char look[64];
        if (s->kind != LANE_CPU)
            continue;
        if (x > MARGIN && x + width > WIDTH - MARGIN) {
            x = MARGIN;
            c->y += 24;
        }
        snprintf(look, sizeof(look), "rx=\"3\" fill=\"%s\"", lane_colour(i));
        rect(c->f, x, c->y, 14, 14, look);
        label(c->f, x + 20, c->y + 12, "plain", "%s", s->name);
        x += width;
    }
    if (x > MARGIN)
        c->y += 36;
}

/* ---- Links ------------------------------------------------------------------------------------ */

/* One cell of the table: lines of text, the first one large; a share of 0..1 gives its shade, and a
 * negative one is a failure. */
static void draw_cell(FILE *f, double x, double y, double size, double share,
                      const char lines[3][16])
{
    char look[64];
    int shade = (int)(235 - 150 * share);
    bool dark = share > 0.55 || share < 0, tall = size >= 46 && *lines[1];

    snprintf(look, sizeof(look), "rx=\"3\" fill=\"rgb(%d,%d,%d)\"",
             shade - 30 > 0 ? shade - 30 : 0, shade, 245 - (int)(60 * share));
    rect(f, x + 1, y + 1, size - 2, size - 2,
         share < 0 ? "rx=\"3\" fill=\"#c2413f\"" : look);
    label(f, x + size / 2, y + (tall ? size / 2 - 6 : size / 2 + 4),
          dark ? "value on" : "value", "%s", lines[0]);
    for (int i = 1; tall && i < 3; i++)
        label(f, x + size / 2, y + size / 2 - 6 + 13 * i, dark ? "tiny on" : "tiny", "%s",
              lines[i]);
}

/* Where value lies between the smallest and the largest, by magnitude. */
static double share_of(double value, double least, double most)
{
    if (!(value > 0) || !(most > least))
        return 0.5;
    return log(value / least) / log(most / least);
}

struct table {
    int n;
    double cell, left, top;
};

static struct table begin_table(struct canvas *c, int n, const char *title)
{
    double cell = (WIDTH - 2.0 * MARGIN - LABEL) / n;

    label(c->f, MARGIN, c->y + 20, "head", "%s", title);
    struct table b = {.n = n,
                      .cell = cell < MOST_CELL ? cell : MOST_CELL,
                      .left = MARGIN + LABEL,
                      .top = c->y + 56};
    c->y = b.top + b.cell * n + GAP;
    return b;
}

/* The name of row and column i. */
static void draw_names(FILE *f, const struct table *b, int i, const char *name)
{
    int most = (int)(b->cell / 5.6), all = (int)strlen(name), wide = LABEL / 7;
    double at = b->cell * (i + 0.5);

    /* The ends of names tell slices apart, the beginnings sets of processors. */
    if (all <= most || most > 2)
        label(f, b->left + at, b->top - 6, "column", "%s%s", all > most ? ".." : "",
              all > most ? name + all - most + 2 : name);
    label(f, b->left - 8, b->top + at + 4, "plain right", "%.*s%s",
          all > wide ? wide - 2 : all, name, all > wide ? ".." : "");
}

static void draw_links(struct canvas *c)
{
    const struct topo *t = c->t;
    double least = INFINITY, most = 0;

    if (!t->n_links)
        return;
    for (int i = 0; i < t->n_links; i++) {
        const struct topo_link *l = &t->links[i];
        least = l->picked && l->bandwidth > 0 ? fmin(least, l->bandwidth) : least;
        most = l->picked ? fmax(most, l->bandwidth) : most;
    }
    struct table b = begin_table(
        c, t->n_lanes, "Links from row to column: GB/s, latency in microseconds, kind");
    for (int i = 0; i < b.n; i++) {
        draw_names(c->f, &b, i, t->specs[i].name);
        for (int j = 0; j < b.n; j++) {
            const struct topo_link *l = topo_link_between(t, i, j);
            char lines[3][16] = {"failed", "", ""};
            if (!l)
                continue;
            if (!l->failed) {
                snprintf(lines[0], sizeof(lines[0]),
                         l->bandwidth < 1e11 ? "%.1f" : "%.0f", l->bandwidth * 1e-9);
                snprintf(lines[1], sizeof(lines[1]), "%.1f us", l->latency * 1e6);
                snprintf(lines[2], sizeof(lines[2]), "%s", link_kind_name(l->kind));
            }
            draw_cell(c->f, b.left + b.cell * j, b.top + b.cell * i, b.cell,
                      l->failed ? -1 : share_of(l->bandwidth, least, most), lines);
        }
    }
}

static void draw_nvlink(struct canvas *c)
{
    const struct place_machine *m = &c->t->machine;
    double least = INFINITY, most = 0;

    if (!m->nvlink)
        return;
    for (int i = 0; i < m->n_gpus * m->n_gpus; i++) {
        least = m->nvlink[i] > 0 ? fmin(least, m->nvlink[i]) : least;
        most = fmax(most, m->nvlink[i]);
    }
    struct table b = begin_table(c, m->n_gpus, "NVLink between GPUs, GB/s");
    for (int i = 0; i < b.n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "cuda:%d", i);
        draw_names(c->f, &b, i, name);
        for (int j = 0; j < b.n; j++) {
            double rate = m->nvlink[i * b.n + j];
            char lines[3][16] = {"", "", ""};
            if (rate <= 0)
                continue;
            snprintf(lines[0], sizeof(lines[0]), "%.4g", rate * 1e-9);
            draw_cell(c->f, b.left + b.cell * j, b.top + b.cell * i, b.cell,
                      share_of(rate, least, most), lines);
        }
    }
}

/* ---- The whole -------------------------------------------------------------------------------- */

static void draw_title(struct canvas *c)
{
    const struct place_machine *m = &c->t->machine;

    c->y = MARGIN + 18;
    label(c->f, MARGIN, c->y, "title", "%s", *m->name ? m->name : "this machine");
    c->y += 24;
    label(c->f, MARGIN, c->y, "plain",
          "%s%spackages %d, cores %d, processors %d, GPUs %d, %.0f GiB", m->cpu,
          *m->cpu ? ": " : "", m->packages, m->cores, m->processors, m->n_gpus,
          (double)m->memory / GIB);
    c->y += 20;
}

static void draw_chain(struct canvas *c)
{
    if (!c->t->chain)
        return;
    label(c->f, MARGIN, c->y, "plain", "Order of the GPUs (%s)", c->t->chain_basis);
    c->y += 16;
    fprintf(c->f, "<text x=\"%d\" y=\"%.1f\" class=\"small\">", MARGIN, c->y);
    topo_put_chain(c->f, c->t);
    fputs("</text>\n", c->f);
    c->y += 20;
}

static const char style[] =
    "<style>\n"
    "text { font-family: Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #1c2430; }\n"
    ".title { font-size: 22px; font-weight: bold; }\n"
    ".head { font-size: 15px; font-weight: bold; }\n"
    ".name { font-size: 11px; font-weight: bold; }\n"
    ".plain { font-size: 13px; }\n"
    ".small { font-size: 11px; fill: #5b6675; }\n"
    ".right { text-anchor: end; }\n"
    ".cpu, .lane, .value, .tiny, .column { text-anchor: middle; }\n"
    ".cpu { font-size: 9px; fill: #5b6675; }\n"
    ".lane { font-size: 11px; font-weight: bold; fill: #fff; }\n"
    ".value { font-size: 13px; font-weight: bold; }\n"
    ".tiny, .column { font-size: 10px; }\n"
    ".on { fill: #fff; }\n"
    "</style>\n";

void topo_draw(FILE *f, const struct topo *t)
{
    char *body = NULL;
    size_t bytes = 0;
    struct canvas c = {.f = open_memstream(&body, &bytes), .t = t};

    if (!c.f)
        return;
    draw_title(&c);
    draw_chain(&c);
    draw_nodes(&c);
    draw_legend(&c);
    draw_links(&c);
    draw_nvlink(&c);
    fclose(c.f);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\">\n%s",
            WIDTH, c.y + MARGIN - GAP, WIDTH, c.y + MARGIN - GAP, style);
    rect(f, 0, 0, WIDTH, c.y + MARGIN - GAP, "fill=\"#fff\"");
    if (body)
        fwrite(body, 1, bytes, f);
    fputs("</svg>\n", f);
    free(body);
}
