/* The chain of GPUs for a pipeline: the widest first, then the shortest. */
#include "runtime/assign.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MOST_GPUS 16
#define CROSSING  ((int64_t)1 << 40) /* more than all links of a chain together */
#define GAP       64 /* crossings that a missing direct link counts as: more than a chain has */
#define NONE      INT64_MIN /* no chain */
#define UNKNOWN   INT64_MAX

/* A step from one GPU to another, the worse of its two directions: gradients go back. */
struct hop {
    int64_t
        rate; /* MB/s, or what else says which one is faster; < CROSSING / MOST_GPUS */
    int crossings;
};

struct chain {
    struct hop hops[MOST_GPUS][MOST_GPUS];
    int n, p;
    bool ring;
    int64_t least; /* slowest hop that may be taken */
    int64_t
        *worth; /* (2^n, n) of the best way on from a set of GPUs and the last of them */
};

/* What is known of the links, best first. */
enum basis { BY_NVLINK, BY_PEERS, BY_SOCKETS, BY_NUMBER };

static const char *const basis_text[] = {
    [BY_NVLINK] = "NVLink matrix of hwloc",
    [BY_PEERS] = "peer attributes of the driver",
    [BY_SOCKETS] = "sockets and NUMA nodes",
    [BY_NUMBER] = "no link information: in the order of their numbers",
};

/* ---- Hops ------------------------------------------------------------------------------------- */

static bool differ(int a, int b)
{
    return a >= 0 && b >= 0 && a != b;
}

static enum basis find_basis(const struct place_machine *m)
{
    for (int i = 0; m->nvlink && i < m->n_gpus * m->n_gpus; i++)
        if (m->nvlink[i] > 0)
            return BY_NVLINK;
    for (int i = 0; m->peers && i < m->n_gpus * m->n_gpus; i++)
        if (i % (m->n_gpus + 1) && m->peers[i] >= 0)
            return BY_PEERS;
    for (int i = 0; i < m->n_gpus; i++)
        if (m->gpus[i].node >= 0 || m->gpus[i].package >= 0)
            return BY_SOCKETS;
    return BY_NUMBER;
}

/* Megabytes a second, or a thousand less per rank of the driver: 0 is its best. No direct link: 0. */
static int64_t direct_rate(const struct place_machine *m, enum basis basis, int a, int b)
{
    int i = a * m->n_gpus + b;

    if (basis == BY_NVLINK)
        return (int64_t)llround(m->nvlink[i] * 1e-6);
    return m->peers[i] < 0
               ? 0
               : (int64_t)1000 * (1000 - (m->peers[i] < 999 ? m->peers[i] : 999));
}

static struct hop hop_of(const struct place_machine *m, enum basis basis, int a, int b)
{
    const struct place_gpu *x = &m->gpus[a], *y = &m->gpus[b];
    int crossings = differ(x->node, y->node) + differ(x->package, y->package);

    if (basis == BY_NUMBER)
        return (struct hop){0};
    if (basis == BY_SOCKETS)
        return (struct hop){2 - crossings, crossings};
    int64_t to = direct_rate(m, basis, a, b), from = direct_rate(m, basis, b, a);
    int64_t rate = to < from ? to : from;
    return (struct hop){rate, crossings + (rate ? 0 : GAP)};
}

/* ---- The best chain --------------------------------------------------------------------------- */

static int64_t best_rest(struct chain *c, unsigned taken, int last);

/* Of the step from a to b and the best way on from there. */
static int64_t worth_of(struct chain *c, unsigned taken, int a, int b)
{
    const struct hop *h = &c->hops[a][b];

    if (h->rate < c->least)
        return NONE;
    int64_t rest = best_rest(c, taken | 1U << b, b);
    return rest == NONE ? NONE : rest + h->rate - h->crossings * CROSSING;
}

/* A ring starts at its lowest number, which is also how the last lane knows the first. */
static bool may_follow(const struct chain *c, unsigned taken, int next)
{
    bool lower = c->ring && (1U << next) < (taken & -taken);
    return !(taken >> next & 1) && !lower;
}

static int64_t best_rest(struct chain *c, unsigned taken, int last)
{
    int64_t *known = &c->worth[taken * (size_t)c->n + (size_t)last], best = NONE;

    if (*known != UNKNOWN)
        return *known;
    if (__builtin_popcount(taken) == c->p) {
        const struct hop *back = &c->hops[last][__builtin_ctz(taken)];
        best = !c->ring                ? 0
               : back->rate < c->least ? NONE
                                       : back->rate - back->crossings * CROSSING;
    } else {
        for (int next = 0; next < c->n; next++)
            if (may_follow(c, taken, next)) {
                int64_t worth = worth_of(c, taken, last, next);
                best = worth > best ? worth : best;
            }
    }
    return *known = best;
}

/* The best chain without hops slower than the least; false: there is none. */
static bool find_chain(struct chain *c, int *order)
{
    unsigned taken;
    int64_t best = NONE;

    for (size_t i = 0; i < ((size_t)1 << c->n) * (size_t)c->n; i++)
        c->worth[i] = UNKNOWN;
    for (int first = 0; first < c->n; first++)
        if (best_rest(c, 1U << first, first) > best) {
            best = best_rest(c, 1U << first, first);
            order[0] = first;
        }
    if (best == NONE)
        return false;
    taken = 1U << order[0];
    for (int i = 1; i < c->p; i++) {
        int next = 0, last = order[i - 1];
        best = best_rest(c, taken, last);
        while (!may_follow(c, taken, next) || worth_of(c, taken, last, next) != best)
            next++;
        order[i] = next;
        taken |= 1U << next;
    }
    return true;
}

/* The fastest hop that is slower than a rate. */
static int64_t next_rate(const struct chain *c, int64_t below)
{
    int64_t next = -1;

    for (int a = 0; a < c->n; a++)
        for (int b = 0; b < c->n; b++)
            if (a != b && c->hops[a][b].rate < below && c->hops[a][b].rate > next)
                next = c->hops[a][b].rate;
    return next;
}

static int find_order(int *order, const struct place_machine *m, enum basis basis, int p,
                      bool ring)
{
    struct chain c = {.n = m->n_gpus, .p = p, .ring = ring && p > 1};

    c.worth = malloc(((size_t)1 << c.n) * (size_t)c.n * sizeof(*c.worth));
    if (!c.worth)
        return log_no_memory("the order of the GPUs");
    for (int a = 0; a < c.n; a++)
        for (int b = 0; b < c.n; b++)
            c.hops[a][b] = hop_of(m, basis, a, b);
    c.least = next_rate(&c, UNKNOWN);
    while (!find_chain(&c, order))
        c.least = next_rate(&c, c.least);
    free(c.worth);
    return 0;
}

int assign_chain(int *order, const char **basis, const struct place_machine *m, int p,
                 bool ring)
{
    enum basis by = find_basis(m);

    if (p < 1 || p > m->n_gpus) {
        log_error("%d lanes need as many GPUs: this machine has %d", p, m->n_gpus);
        return -EINVAL;
    }
    *basis = basis_text[by];
    if (by != BY_NUMBER && m->n_gpus <= MOST_GPUS)
        return find_order(order, m, by, p, ring);
    if (by != BY_NUMBER)
        *basis = "too many GPUs to compare: in the order of their numbers";
    for (int i = 0; i < p; i++)
        order[i] = i;
    return 0;
}
