/* Every golden plan with one op swapped, dropped, doubled or sent elsewhere: what the
 * slow checker finds good the checker must take, and what it finds at fault the checker
 * must refuse with a place that is at fault. */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "tests/schedules-slow.h"
#include "tests/test.h"

static struct slow slow;
static uint64_t seed = 88172645463325252u;
static size_t tried, refused;

static int draw(size_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int)((seed >> 20) % below);
}

static void read_plan(struct sched_plan *plan, const char *path)
{
    FILE *f = fopen(path, "r");
    struct sched_error err;

    assert_non_null(f);
    if (sched_csv_read(plan, f, 0, &err))
        fail_msg("%s: %s", path, err.text);
    fclose(f);
}

/* The op at fault must be named in words as the error's fields say. */
static void assert_named(const struct sched_error *err)
{
    char want[96];

    snprintf(want, sizeof(want), "lane %d, stage %d, micro-batch %d: ", err->lane,
             err->stage, err->mb);
    if (err->stage >= 0 && err->mb >= 0 && strncmp(err->text, want, strlen(want)))
        fail_msg("\"%s\" does not begin with \"%s\"", err->text, want);
}

/* The same through a file: where the stages are is then for the reader to find out. */
static int check_as_csv(const struct sched_plan *plan, struct sched_error *err)
{
    struct sched_plan read;
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    int rc;

    assert_int_equal(sched_csv_write(plan, f), 0);
    fclose(f);
    rc = sched_csv_parse(&read, text, len, plan->micro_batches, err);
    rc = rc ? rc : sched_check(&read, 0, err);
    sched_plan_fini(&read);
    free(text);
    return rc;
}

static void judge(const struct sched_plan *plan, const char *path, const char *mutation)
{
    struct sched_error err = {.text = ""};
    bool good = slow_check(&slow, plan);
    int rc = sched_check(plan, 0, &err);

    if (!strstr(mutation, "pairing") && !check_as_csv(plan, NULL) != !rc)
        fail_msg("%s, %s: as a file it is judged otherwise: %s", path, mutation,
                 err.text);
    tried++;
    if (good && rc)
        fail_msg("%s, %s: refused, though it is good: %s", path, mutation, err.text);
    if (!good && !rc)
        fail_msg("%s, %s: taken, though lane %d, stage %d, micro-batch %d is at fault",
                 path, mutation, slow.fault[0].lane, slow.fault[0].stage,
                 slow.fault[0].mb);
    if (good)
        return;
    refused++;
    assert_true(rc == -EINVAL || rc == -EDEADLK);
    assert_named(&err);
    if (!slow_has(&slow, err.lane, err.stage, err.mb))
        fail_msg("%s, %s: the place is not at fault: %s (but lane %d, stage %d, "
                 "micro-batch %d)",
                 path, mutation, err.text, slow.fault[0].lane, slow.fault[0].stage,
                 slow.fault[0].mb);
}

static void op_remove(struct sched_lane *l, size_t at)
{
    memmove(l->ops + at, l->ops + at + 1, (l->n - at - 1) * sizeof(*l->ops));
    l->n--;
}

static void op_insert(struct sched_plan *plan, int lane, size_t at, struct sched_op op)
{
    struct sched_lane *l = &plan->lane[lane];

    assert_int_equal(sched_plan_push(plan, lane, op), 0);
    memmove(l->ops + at + 1, l->ops + at, (l->n - 1 - at) * sizeof(*l->ops));
    l->ops[at] = op;
}

static void op_swap(struct sched_op *a, struct sched_op *b)
{
    struct sched_op t = *a;

    *a = *b;
    *b = t;
}

static void restore(struct sched_plan *plan, const struct sched_plan *from)
{
    sched_plan_fini(plan);
    assert_int_equal(sched_plan_copy(plan, from), 0);
}

/* All mutations of one op. */
static void mutate(const struct sched_plan *golden, const char *path, int lane, size_t at)
{
    const struct sched_lane *from = &golden->lane[lane];
    struct sched_plan plan = {0};
    int other = draw((size_t)golden->lanes);

    restore(&plan, golden);
    op_remove(&plan.lane[lane], at);
    judge(&plan, path, "drop");

    restore(&plan, golden);
    op_insert(&plan, lane, at, from->ops[at]);
    judge(&plan, path, "double");

    restore(&plan, golden);
    op_insert(&plan, lane, (size_t)draw(from->n + 1), from->ops[at]);
    judge(&plan, path, "double far away");

    restore(&plan, golden);
    op_swap(&plan.lane[lane].ops[at], &plan.lane[lane].ops[(at + 1) % from->n]);
    judge(&plan, path, "swap with the next");

    restore(&plan, golden);
    op_swap(&plan.lane[lane].ops[at], &plan.lane[lane].ops[draw(from->n)]);
    judge(&plan, path, "swap in the lane");

    restore(&plan, golden);
    op_swap(&plan.lane[lane].ops[at], &plan.lane[other].ops[draw(golden->lane[other].n)]);
    judge(&plan, path, "swap between lanes");

    restore(&plan, golden);
    op_remove(&plan.lane[lane], at);
    op_insert(&plan, other, (size_t)draw(plan.lane[other].n + 1), from->ops[at]);
    judge(&plan, path, "another place or lane");

    restore(&plan, golden);
    plan.lane[lane].ops[at].stage = draw((size_t)golden->stages + 1);
    judge(&plan, path, "another stage");

    restore(&plan, golden);
    plan.lane[lane].ops[at].mb = draw((size_t)golden->micro_batches + 1);
    judge(&plan, path, "another micro-batch");

    restore(&plan, golden);
    plan.lane[lane].ops[at].kind = (uint8_t)draw(SCHED_STEP);
    judge(&plan, path, "another kind");

    restore(&plan, golden);
    plan.lane[lane].ops[at].pair ^= 1;
    judge(&plan, path, "another pairing");
    sched_plan_fini(&plan);
}

static void mutations(void **state)
{
    DIR *dir = opendir(TEST_DATA("plans"));
    const struct dirent *entry;
    int plans = 0;

    (void)state;
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        char path[4400];
        struct sched_plan golden;
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".csv"))
            continue;
        snprintf(path, sizeof(path), "%s/%s", TEST_DATA("plans"), entry->d_name);
        read_plan(&golden, path);
        judge(&golden, path, "nothing");
        assert_true(slow.faults == 0);
        for (int i = 0; i < golden.lanes; i++)
            for (size_t k = 0; k < golden.lane[i].n; k++)
                mutate(&golden, path, i, k);
        sched_plan_fini(&golden);
        plans++;
    }
    closedir(dir);
    assert_true(plans >= 20);
    assert_true(refused > tried / 2 && refused < tried);
}

/* ---- Faults by hand ---------------------------------------------------------------- */

/* The text is refused, and what is said has all of these words. */
static void assert_fault(const char *csv, double cap, const char *words)
{
    struct sched_plan plan;
    struct sched_error err = {.text = ""};
    char copy[256], *save;
    int rc = sched_csv_parse(&plan, csv, strlen(csv), 0, &err);

    if (!rc)
        rc = sched_check(&plan, cap, &err);
    sched_plan_fini(&plan);
    if (!rc)
        fail_msg("%s was taken", csv);
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *w = strtok_r(copy, "|", &save); w; w = strtok_r(NULL, "|", &save))
        if (!strstr(err.text, w))
            fail_msg("%s: \"%s\" has no \"%s\"", csv, err.text, w);
}

static void faults(void **state)
{
    (void)state;
    /* Counting per kind sees nothing wrong with this one. */
    assert_fault("0F0,0F1,0B0,0I0,0W0", 0, "lane 0, stage 0, micro-batch 0|twice");
    assert_fault("0F0,0B0,0F1", 0, "lane 0, stage 0, micro-batch 1|0B1 is missing");
    assert_fault("0F0,0B0\n1F0", 0, "lane 1, stage 1, micro-batch 0|1B0 is missing");
    assert_fault("0F0,0F0,0B0", 0, "lane 0, stage 0, micro-batch 0|twice");
    assert_fault("0B0,0F0", 0, "lane 0, stage 0, micro-batch 0|before its F");
    assert_fault("0F0,0W0,0I0", 0, "lane 0, stage 0, micro-batch 0|before its I");
    assert_fault("0F0,0I0", 0, "lane 0, stage 0, micro-batch 0|0W0 is missing");
    assert_fault("0F0,0B0,0F1,0B1\n1F0,1B0\n1F1,1B1", 0, "stage 1|lane");
    assert_fault("0F0,0B0\n2F0,2B0", 0, "stage 1|no lane");
    assert_fault("0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1,1F0", 0, "1F0 is there twice");
    /* 1 waits for 0 and 0 for 1. */
    assert_fault("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0", 0,
                 "cycle|0B0 waits for 1B0 on lane 1|1F1 waits for 0F1 on lane 0");
    assert_fault("0F0,0F1,0F2,0B0,0B1,0B2", 2,
                 "lane 0, stage 0, micro-batch 2|peak at 3|cap of 2");
    assert_fault("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0", 0,
                 "lane 1, stage 1, micro-batch 0|1RECV_F0 is missing, but it is sent");
    assert_fault(
        "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0", 0,
        "lane 0, stage 0, micro-batch 0|0SEND_F0 is missing, but it is received");
    assert_fault("0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1", 0,
                 "lane 1, stage 1, micro-batch 1|number 1|lane 0|number 2");
    assert_fault("0SEND_F0,0F0\n1RECV_F0,1F0", 0,
                 "lane 0, stage 0, micro-batch 0|before its F");
    assert_fault("0F0,0SEND_F0,1F0", 0, "0SEND_F0 is not needed");
    assert_fault("0F0,0STEP,0B0", 0, "lane 0, stage 0|STEP");
    assert_fault("(0F0;0B0)OVERLAP_F_B", 0, "lane 0, stage 0, micro-batch 0|cycle");
    assert_fault("(0F0;0F1)OVERLAP_F_B,0B0,0B1", 0, "0F0 is paired");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutations),
        cmocka_unit_test(faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
