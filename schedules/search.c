/* Hill climbing over the rules of the greedy builder, for one placement of the stages. */
#include "schedules/search.h"

#include "schedules/greedy.h"
#include "schedules/simulate.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What decides a plan: the rules of every lane and the limits of every stage. */
struct rules {
    struct greedy_rule *rule; /* (lanes) */
    int *limit;               /* (stages of all copies) */
    bool split;
    double makespan;
};

struct search {
    struct greedy g;
    struct sched_plan plan; /* the placement */
    struct rules at, best, trial;
    uint64_t random; /* state */
    int64_t *work;
    int cap;
    bool fused;   /* a full backward is faster than its halves */
    double bound; /* no plan of this placement is faster */
};

/* ---- Memory ------------------------------------------------------------------------ */

static int rules_init(struct rules *r, const struct search *s)
{
    r->rule = calloc((size_t)s->g.lanes, sizeof(*r->rule));
    r->limit = calloc((size_t)s->g.all, sizeof(*r->limit));
    r->split = true;
    r->makespan = INFINITY;
    return r->rule && r->limit ? 0 : -ENOMEM;
}

static void rules_fini(struct rules *r)
{
    free(r->rule);
    free(r->limit);
}

static void rules_copy(struct rules *to, const struct rules *from, const struct search *s)
{
    memcpy(to->rule, from->rule, (size_t)s->g.lanes * sizeof(*to->rule));
    memcpy(to->limit, from->limit, (size_t)s->g.all * sizeof(*to->limit));
    to->split = from->split;
    to->makespan = from->makespan;
}

/* ---- Trying rules ------------------------------------------------------------------ */

/* The same numbers in every run. */
static int random_below(struct search *s, int n)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (int)((s->random >> 33) % (uint64_t)n);
}

static void try_rules(struct search *s, struct rules *r, double cutoff)
{
    struct greedy_policy policy = {.rule = r->rule,
                                   .limit = r->limit,
                                   .cap = s->cap,
                                   .split = r->split,
                                   .cutoff = cutoff};

    r->makespan = greedy_run(&s->g, &policy);
    *s->work -= (int64_t)s->g.built + s->g.all;
    if (r->makespan < s->best.makespan)
        rules_copy(&s->best, r, s);
}

static bool is_over(const struct search *s)
{
    return *s->work <= 0 || s->best.makespan <= s->bound * (1 + 1e-12);
}

/* Every lane the same rule; a stage's limit in proportion to its distance from the
 * end. */
static void set_uniform(struct search *s, struct rules *r, struct greedy_rule rule,
                        double slope)
{
    for (int i = 0; i < s->g.lanes; i++)
        r->rule[i] = rule;
    for (int k = 0; k < s->g.all; k++) {
        double limit = ceil(slope * (s->g.stages - s->g.stage[k].stage));
        r->limit[k] = limit < s->g.micro_batches ? (int)limit : s->g.micro_batches;
    }
}

static void start(struct search *s)
{
    static const double slopes[] = {1, 1.5, 2, 0.75, 0.5, 1e9};
    static const double patience[] = {0, 0.5, 1};
    int orders = s->g.all > s->g.lanes ? 4 : 1;

    for (int n = 0; n < 6 * 3 * 2 * orders * (1 + s->fused) && !is_over(s); n++) {
        int rest = n / 18, order = rest / 2 % orders;
        struct greedy_rule rule = {.patience = patience[n / 6 % 3],
                                   .owed = INT_MAX,
                                   .forward_first = rest % 2,
                                   .deepest_f = order % 2,
                                   .deepest_i = order / 2};
        set_uniform(s, &s->trial, rule, slopes[n % 6]);
        s->trial.split = rest / 2 / orders == 0;
        try_rules(s, &s->trial, s->best.makespan);
    }
    rules_copy(&s->at, &s->best, s);
}

static void change_rule(struct search *s, struct greedy_rule *rule)
{
    switch (random_below(s, 6)) {
    case 0:
        rule->forward_first = !rule->forward_first;
        break;
    case 1:
        rule->deepest_f = !rule->deepest_f;
        break;
    case 2:
        rule->deepest_i = !rule->deepest_i;
        break;
    case 3:
        rule->owed = random_below(s, 2)
                         ? INT_MAX
                         : random_below(s, 2 * s->cap < 4 ? 4 : 2 * s->cap);
        break;
    default:
        rule->patience = random_below(s, 5) * 0.25;
    }
}

static void change_limit(struct search *s, int *limit)
{
    static const int steps[] = {-2, -1, -1, 1, 1, 2};

    *limit += steps[random_below(s, 6)];
    if (*limit < 1)
        *limit = 1;
    if (*limit > s->g.micro_batches)
        *limit = s->g.micro_batches;
}

/* A small change: of one stage, of one lane, sometimes of all. */
static void change(struct search *s, struct rules *r)
{
    int what = random_below(s, 16);

    if (what < 8)
        change_limit(s, &r->limit[random_below(s, s->g.all)]);
    else if (what < 14)
        change_rule(s, &r->rule[random_below(s, s->g.lanes)]);
    else if (what == 14)
        for (int k = 0; k < s->g.all; k++)
            change_limit(s, &r->limit[k]);
    else {
        struct greedy_rule rule = r->rule[0];
        change_rule(s, &rule);
        for (int i = 0; i < s->g.lanes; i++)
            r->rule[i] = rule;
    }
}

/* Keeps what is no worse, and now and then a little worse; returns to the best if nothing
 * has come of it. */
static void climb(struct search *s)
{
    int idle = 0;

    while (!is_over(s)) {
        double before = s->best.makespan, most;
        rules_copy(&s->trial, &s->at, s);
        for (int n = 1 + random_below(s, 3); n > 0; n--)
            change(s, &s->trial);
        most = s->at.makespan * (random_below(s, 8) ? 1 : 1.003);
        try_rules(s, &s->trial, most);
        if (s->trial.makespan <= most)
            rules_copy(&s->at, &s->trial, s);
        idle = s->best.makespan < before ? 0 : idle + 1;
        if (idle % 100 == 99)
            rules_copy(&s->at, &s->best, s);
    }
}

/* ---- One placement ----------------------------------------------------------------- */

/* A lane works without a pause from when the first op can reach it. */
static double lower_bound(const struct greedy *g)
{
    double bound = 0;

    for (int i = 0; i < g->lanes; i++) {
        double work = 0, head = INFINITY;
        for (int j = g->lane_first[i]; j < g->lane_first[i + 1]; j++) {
            const struct greedy_stage *st = &g->stage[g->lane_stage[j]];
            double half = st->i + st->w < st->b ? st->i + st->w : st->b, way = 0;
            for (int k = st->before; k >= 0; k = g->stage[k].before)
                way += g->stage[k].f + g->stage[k].to_next;
            head = way < head ? way : head;
            work += st->count * (st->f + half);
        }
        bound = head + work > bound ? head + work : bound;
    }
    return bound;
}

static int search_init(struct search *s, const struct search_place *place,
                       const struct sched_shape *shape)
{
    int rc = sched_make_empty(&s->plan, "auto", place->place, shape->lanes, place->chunks,
                              shape->micro_batches);
    double chunk = (double)shape->lanes / (shape->lanes * place->chunks);

    rc = rc ? rc : greedy_init(&s->g, &s->plan, shape->costs);
    if (rc)
        return rc;
    s->random = 0x9e3779b97f4a7c15;
    s->cap = INT_MAX / 2;
    if (shape->cap > 0 && shape->cap / chunk < s->cap)
        s->cap = (int)floor(shape->cap / chunk + 1e-9);
    s->bound = lower_bound(&s->g);
    for (int k = 0; k < s->g.all; k++)
        s->fused |= s->g.stage[k].b < s->g.stage[k].i + s->g.stage[k].w;
    rc = rules_init(&s->at, s);
    rc = rc ? rc : rules_init(&s->best, s);
    return rc ? rc : rules_init(&s->trial, s);
}

static void search_fini(struct search *s)
{
    rules_fini(&s->at);
    rules_fini(&s->best);
    rules_fini(&s->trial);
    greedy_fini(&s->g);
    sched_plan_fini(&s->plan);
}

/* Builds the best plan once more and lets it take the other's place, if it is faster. */
static int take_best(struct search *s, struct sched_plan *best, double *makespan,
                     const struct sched_costs *costs)
{
    struct sched_sim sim;
    int rc;

    if (!(s->best.makespan < *makespan))
        return 0;
    try_rules(s, &s->best, INFINITY);
    rc = greedy_write(&s->g, &s->plan);
    rc = rc ? rc : sched_simulate(&sim, &s->plan, costs, NULL);
    if (rc)
        return rc;
    if (sim.makespan < *makespan) {
        sched_plan_fini(best);
        *best = s->plan;
        memset(&s->plan, 0, sizeof(s->plan));
        *makespan = sim.makespan;
    }
    sched_sim_fini(&sim);
    return 0;
}

int search_place(struct sched_plan *best, double *makespan,
                 const struct search_place *place, const struct sched_shape *shape,
                 int64_t *work)
{
    struct search s = {.work = work};
    int rc = search_init(&s, place, shape);

    if (!rc && s.cap >= place->chunks && s.bound < *makespan &&
        (int64_t)s.g.count <= *work) {
        start(&s);
        if (!isinf(s.best.makespan))
            climb(&s);
        rc = take_best(&s, best, makespan, shape->costs);
    }
    search_fini(&s);
    return rc;
}
