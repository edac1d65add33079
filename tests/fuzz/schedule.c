/* Fuzz target: any bytes as a plan in CSV; what passes the check is simulated, given its
 * transfers, and written and read again. */
#include <stdlib.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/simulate.h"

/* An accepted plan must come back from its own file with as many ops. */
static void read_again(const struct sched_plan *plan)
{
    struct sched_plan again;
    size_t len = 0;
    char *text = NULL;
    FILE *f = open_memstream(&text, &len);

    if (!f || sched_csv_write(plan, f) || fclose(f))
        abort();
    if (sched_csv_parse(&again, text, len, plan->micro_batches, NULL) ||
        sched_check(&again, 0, NULL) ||
        sched_plan_count(&again) != sched_plan_count(plan))
        abort();
    sched_plan_fini(&again);
    free(text);
}

/* A plan that passes the check runs, with its transfers and without. */
static void use(struct sched_plan *plan)
{
    struct sched_sim sim;

    if (sched_simulate(&sim, plan, &sched_costs_unit, NULL))
        abort();
    sched_sim_fini(&sim);
    read_again(plan);
    if (sched_comm_insert(plan, NULL) || sched_check(plan, 0, NULL))
        abort();
    read_again(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sched_error err;
    struct sched_plan plan;

    if (sched_csv_parse(&plan, (const char *)data, size, 0, &err))
        return 0;
    if (!sched_check(&plan, 0, &err))
        use(&plan);
    sched_plan_fini(&plan);
    return 0;
}
