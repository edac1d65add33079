/* Finds the edges between lanes, and counts what they need. */
#include "schedules/edges.h"

#include <errno.h>
#include <stdlib.h>

static int edge_compare(const void *left, const void *right)
{
    const struct sched_edge *a = left, *b = right;

    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (int)a->backward - (int)b->backward;
}

/* Every border between two stages on two lanes gives an edge in each direction, many of
 * them the same. */
static int edges_list(struct sched_edges *edges, const struct sched_plan *plan)
{
    size_t borders = (size_t)plan->copies * (size_t)(plan->stages - 1);
    int n = 0;

    edges->edge = calloc(2 * borders + 1, sizeof(*edges->edge));
    if (!edges->edge)
        return -ENOMEM;
    for (int copy = 0; copy < plan->copies; copy++) {
        const int *lane = plan->stage_lane + (size_t)copy * (size_t)plan->stages;
        for (int s = 0; s + 1 < plan->stages; s++) {
            if (lane[s] == lane[s + 1])
                continue;
            edges->edge[n++] = (struct sched_edge){.from = lane[s], .to = lane[s + 1]};
            edges->edge[n++] =
                (struct sched_edge){.from = lane[s + 1], .to = lane[s], .backward = true};
        }
    }
    qsort(edges->edge, (size_t)n, sizeof(*edges->edge), edge_compare);
    for (int i = 0; i < n; i++)
        if (!i || edge_compare(&edges->edge[i], &edges->edge[edges->n - 1]))
            edges->edge[edges->n++] = edges->edge[i];
    return 0;
}

static bool takes_input(int kind)
{
    return kind == SCHED_F || kind == SCHED_B || kind == SCHED_I;
}

struct sched_edge *sched_edges_input(const struct sched_edges *edges,
                                     const struct sched_plan *plan,
                                     const struct sched_op *op)
{
    bool backward = op->kind != SCHED_F && op->kind != SCHED_RECV_F;
    struct sched_edge key = {.backward = backward};

    if (op->kind == SCHED_W || op->kind == SCHED_STEP)
        return NULL;
    key.from = sched_plan_lane(plan, op->stage + (backward ? 1 : -1), op->mb);
    key.to = sched_plan_lane(plan, op->stage, op->mb);
    if (key.from < 0 || key.from == key.to)
        return NULL;
    return bsearch(&key, edges->edge, (size_t)edges->n, sizeof(key), edge_compare);
}

/* A buffer is taken by RECV and free again when the op that needs it is through. */
static void count_lane(struct sched_edges *edges, const struct sched_plan *plan,
                       const struct sched_lane *l, size_t *alive)
{
    for (size_t k = 0; k < l->n; k++) {
        const struct sched_op *op = &l->ops[k];
        bool recv = op->kind == SCHED_RECV_F || op->kind == SCHED_RECV_B;
        struct sched_edge *e;
        if (!recv && !takes_input(op->kind))
            continue;
        e = sched_edges_input(edges, plan, op);
        if (!e)
            continue;
        if (!recv)
            e->count++;
        if (!recv && alive[e - edges->edge])
            alive[e - edges->edge]--;
        if (recv && ++alive[e - edges->edge] > e->buffers)
            e->buffers = alive[e - edges->edge];
    }
}

int sched_edges_init(struct sched_edges *edges, const struct sched_plan *plan)
{
    size_t *alive = NULL;
    int rc;

    edges->n = 0;
    rc = edges_list(edges, plan);
    if (!rc) {
        alive = calloc((size_t)edges->n + 1, sizeof(*alive));
        rc = alive ? 0 : -ENOMEM;
    }
    for (int i = 0; i < plan->lanes && !rc; i++)
        count_lane(edges, plan, &plan->lane[i], alive);
    free(alive);
    if (rc)
        sched_edges_fini(edges);
    return rc;
}

void sched_edges_fini(struct sched_edges *edges)
{
    free(edges->edge);
    edges->edge = NULL;
    edges->n = 0;
}
