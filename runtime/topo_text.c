/* The machine as text. */
#include "runtime/topo.h"

#include <string.h>

#define GIB 1073741824.0

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static void print_processors(FILE *f, const struct place_machine *m)
{
    fprintf(f, "  %d package%s, %d core%s, %d processor%s, %.1f GiB\n", m->packages,
            plural(m->packages), m->cores, plural(m->cores), m->processors,
            plural(m->processors), (double)m->memory / GIB);
    for (int i = 0; i < m->n_nodes; i++) {
        const struct place_node *n = &m->nodes[i];
        char text[128];
        place_cpus_text(text, sizeof(text), n->cpus, n->n_cpus, ',');
        fprintf(f, "  node %d: %.1f GiB, %s%s\n", n->index, (double)n->memory / GIB,
                n->n_cpus ? "usable processors " : "no usable processor", text);
    }
}

static void print_machine(FILE *f, const struct place_machine *m)
{
    fprintf(f, "machine%s\n", m->here ? "" : " (as a file describes it, not this one)");
    if (*m->name)
        fprintf(f, "  %s\n", m->name);
    if (*m->cpu)
        fprintf(f, "  %s\n", m->cpu);
    print_processors(f, m);
}

static void print_gpus(FILE *f, const struct topo *t)
{
    const struct place_machine *m = &t->machine;

    fprintf(f, "GPUs\n");
    if (!m->n_gpus)
        fprintf(f, "  none: %s\n", place_why_none(t->place));
    for (int i = 0; i < m->n_gpus; i++) {
        const struct place_gpu *g = &m->gpus[i];
        fprintf(f, "  cuda:%-3d %s, %s", i, *g->name ? g->name : "NVIDIA", g->pci);
        if (g->node >= 0)
            fprintf(f, ", node %d", g->node);
        if (g->sms)
            fprintf(f, ", %d multiprocessors", g->sms);
        if (g->memory)
            fprintf(f, ", %.1f GiB", (double)g->memory / GIB);
        fputc('\n', f);
    }
}

/* A square table of the GPUs: what NVLink carries, or the driver's rank of direct links. */
static void print_gpu_table(FILE *f, const struct topo *t)
{
    const struct place_machine *m = &t->machine;
    int n = m->n_gpus;

    if (m->nvlink)
        fprintf(f, "NVLink, GB/s\n");
    else if (m->peers)
        fprintf(f, "direct links, rank by the driver (0 is the fastest)\n");
    else
        return;
    fprintf(f, "  %8s", "");
    for (int b = 0; b < n; b++)
        fprintf(f, " %5d", b);
    for (int a = 0; a < n; a++) {
        fprintf(f, "\n  cuda:%-3d", a);
        for (int b = 0; b < n; b++) {
            bool linked = m->nvlink ? m->nvlink[a * n + b] > 0 : m->peers[a * n + b] >= 0;
            if (a == b || !linked)
                fprintf(f, " %5s", a == b ? "" : "-");
            else if (m->nvlink)
                fprintf(f, " %5.0f", m->nvlink[a * n + b] * 1e-9);
            else
                fprintf(f, " %5d", m->peers[a * n + b]);
        }
    }
    fputc('\n', f);
}

void topo_put_chain(FILE *f, const struct topo *t)
{
    for (int i = 0; i < t->machine.n_gpus; i++)
        fprintf(f, "%scuda:%d", i ? "," : "", t->chain[i]);
}

static void print_chain(FILE *f, const struct topo *t)
{
    if (!t->chain)
        return;
    fprintf(f, "order of the GPUs (%s)\n  ", t->chain_basis);
    topo_put_chain(f, t);
    fputc('\n', f);
}

static int name_width(const struct topo *t)
{
    int width = 4;
    for (int i = 0; i < t->n_lanes; i++) {
        int n = (int)strlen(t->specs[i].name);
        width = n > width ? n : width;
    }
    return width;
}

static void print_lanes(FILE *f, const struct topo *t)
{
    int width = name_width(t);

    fprintf(f, "lanes\n");
    for (int i = 0; i < t->n_lanes; i++) {
        const struct lane_spec *s = &t->specs[i];
        fprintf(f, "  %-*s ", width, s->name);
        if (s->kind == LANE_CPU)
            fprintf(f, " %d processor%s", s->n_cpus, plural(s->n_cpus));
        else if (t->lanes[i].sms)
            fprintf(f, " %d multiprocessors", t->lanes[i].sms);
        else
            fprintf(f, " GPU %d", s->device);
        if (t->nodes[i] >= 0)
            fprintf(f, ", node %d", t->nodes[i]);
        fputc('\n', f);
    }
}

static void print_links(FILE *f, const struct topo *t)
{
    int width = name_width(t);

    if (!t->machine.here) {
        fprintf(f, "links: not measured, for this is another machine\n");
        return;
    }
    if (!t->n_links) {
        fprintf(f, "links: none, for there is one lane\n");
        return;
    }
    fprintf(f, "links%s\n", t->neighbours ? " from each lane to the next" : "");
    fprintf(f, "  %-*s  %-*s  %-5s  %10s  %10s\n", width, "from", width, "to", "kind",
            "latency", "bandwidth");
    for (int i = 0; i < t->n_links; i++) {
        const struct topo_link *l = &t->links[i];
        fprintf(f, "  %-*s  %-*s  %-4s%c", width, t->specs[l->from].name, width,
                t->specs[l->to].name, link_kind_name(l->kind), l->picked ? '*' : ' ');
        if (l->failed)
            fprintf(f, "  failed\n");
        else
            fprintf(f, "  %7.1f us  %5.1f GB/s\n", l->latency * 1e6, l->bandwidth * 1e-9);
    }
    fprintf(f,
            "  * what --link auto takes; a transfer takes latency + bytes / bandwidth\n");
}

void topo_print(FILE *f, const struct topo *t)
{
    print_machine(f, &t->machine);
    print_gpus(f, t);
    print_gpu_table(f, t);
    print_chain(f, t);
    print_lanes(f, t);
    print_links(f, t);
}
