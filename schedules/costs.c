/* Costs of ops and transfers: per stage of any plan, and as a file. */
#include "schedules/costs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct sched_costs sched_costs_unit = {.lane = {.f = 1, .i = 1, .w = 1}};

static void cost_add(struct sched_cost *sum, const struct sched_cost *c, double share)
{
    sum->f += c->f * share;
    sum->i += c->i * share;
    sum->w += c->w * share;
    sum->b += (c->b > 0 ? c->b : c->i + c->w) * share;
}

/* The rows that lie in the model's part [stage / stages, (stage + 1) / stages), counted
 * in 1/stages of a row so that whole rows stay whole. */
static void add_rows(struct sched_cost *sum, const struct sched_costs *costs, int stages,
                     int stage)
{
    int64_t from = (int64_t)stage * costs->rows, to = from + costs->rows;

    while (from < to) {
        int64_t row = from / stages, end = (row + 1) * stages;
        if (end > to)
            end = to;
        cost_add(sum, &costs->row[row], (double)(end - from) / stages);
        from = end;
    }
}

struct sched_cost sched_costs_stage(const struct sched_costs *costs, int lanes,
                                    int stages, int stage)
{
    struct sched_cost sum = {0};

    if (costs->rows)
        add_rows(&sum, costs, stages, stage);
    else
        cost_add(&sum, &costs->lane, (double)lanes / stages);
    return sum;
}

void sched_costs_stages(struct sched_cost *out, const struct sched_costs *costs,
                        int lanes, int stages)
{
    for (int s = 0; s < stages; s++)
        out[s] = sched_costs_stage(costs, lanes, stages, s);
}

double sched_costs_hop(const struct sched_costs *costs, int from, int to)
{
    double latency = costs->latency, bandwidth = costs->bandwidth;

    if (from == to)
        return 0;
    for (int i = 0; i < costs->n_links; i++) {
        const struct sched_link *l = &costs->links[i];
        if (l->from != from || l->to != to)
            continue;
        latency = l->latency;
        bandwidth = l->bandwidth > 0 ? l->bandwidth : bandwidth;
    }
    return latency + (bandwidth > 0 ? costs->bytes / bandwidth : 0);
}

void sched_costs_fini(struct sched_costs *costs)
{
    free(costs->row);
    free(costs->links);
    memset(costs, 0, sizeof(*costs));
}

/* Grows an array to hold one more element; capacities are powers of two. */
static int array_grow(void **array, int n, size_t size)
{
    void *bigger;

    if (n & (n - 1))
        return 0;
    bigger = realloc(*array, (n ? 2 * (size_t)n : 1) * size);
    if (!bigger)
        return -ENOMEM;
    *array = bigger;
    return 0;
}

/* Splits a line into a word and up to `most` numbers that are finite and not negative.
 * Returns how many numbers there are, -1 if something else stands there. */
static int line_parse(char *line, char **word, double *numbers, int most)
{
    char *end, *save, *token;
    int n = 0;

    line[strcspn(line, "#")] = 0;
    *word = strtok_r(line, " \t\r\n", &save);
    while (*word && (token = strtok_r(NULL, " \t\r\n", &save))) {
        if (n == most)
            return -1;
        numbers[n] = strtod(token, &end);
        if (*end || !isfinite(numbers[n]) || numbers[n] < 0 || numbers[n] > 1e12)
            return -1;
        n++;
    }
    return n;
}

static int add_stage(struct sched_costs *costs, const double *x, int n)
{
    int rc;

    if (n < 3 || n > 4 || x[0] <= 0)
        return -EINVAL;
    rc = array_grow((void **)&costs->row, costs->rows, sizeof(*costs->row));
    if (rc)
        return rc;
    costs->row[costs->rows++] =
        (struct sched_cost){.f = x[0], .i = x[1], .w = x[2], .b = n > 3 ? x[3] : 0};
    return 0;
}

static int add_link(struct sched_costs *costs, const double *x, int n)
{
    int rc;

    if (n < 3 || n > 4 || x[0] > SCHED_MAX_LANES || x[1] > SCHED_MAX_LANES ||
        x[0] != floor(x[0]) || x[1] != floor(x[1]))
        return -EINVAL;
    rc = array_grow((void **)&costs->links, costs->n_links, sizeof(*costs->links));
    if (rc)
        return rc;
    costs->links[costs->n_links++] = (struct sched_link){.from = (int)x[0],
                                                         .to = (int)x[1],
                                                         .latency = x[2],
                                                         .bandwidth = n > 3 ? x[3] : 0};
    return 0;
}

static int add_line(struct sched_costs *costs, char *line)
{
    double x[4], *single = NULL;
    char *word;
    int n = line_parse(line, &word, x, 4);

    if (!word)
        return 0;
    if (!strcmp(word, "stage"))
        return add_stage(costs, x, n);
    if (!strcmp(word, "link"))
        return add_link(costs, x, n);
    if (!strcmp(word, "pair"))
        single = &costs->pair;
    else if (!strcmp(word, "latency"))
        single = &costs->latency;
    else if (!strcmp(word, "bytes"))
        single = &costs->bytes;
    else if (!strcmp(word, "bandwidth"))
        single = &costs->bandwidth;
    if (!single || n != 1)
        return -EINVAL;
    *single = x[0];
    return 0;
}

int sched_costs_read(struct sched_costs *costs, FILE *file, struct sched_error *err)
{
    char line[512];
    int number = 0, rc = 0;

    *costs = sched_costs_unit;
    while (!rc && fgets(line, sizeof(line), file)) {
        number++;
        rc = strchr(line, '\n') || feof(file) ? add_line(costs, line) : -EINVAL;
    }
    if (!rc && ferror(file))
        rc = -EIO;
    if (rc == -EINVAL)
        sched_fail(
            err, rc, -1, -1, -1,
            "line %d: expected \"stage F I W [B]\", \"pair SHARE\", \"latency T\", "
            "\"bytes N\", \"bandwidth R\" or \"link FROM TO LATENCY [BANDWIDTH]\"",
            number);
    else if (rc)
        sched_fail(err, rc, -1, -1, -1, "line %d: %s", number, strerror(-rc));
    if (rc)
        sched_costs_fini(costs);
    return rc;
}
