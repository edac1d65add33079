/* Plans to CSV and back, and files that are no plans. */
#include <errno.h>
#include <string.h>

#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/list.h"
#include "tests/test.h"

static int parse(struct sched_plan *plan, const char *text, struct sched_error *err)
{
    return sched_csv_parse(plan, text, strlen(text), 0, err);
}

static char *write_plan(const struct sched_plan *plan)
{
    char *text;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    assert_int_equal(sched_csv_write(plan, f), 0);
    fclose(f);
    return text;
}

static void assert_same(const struct sched_plan *a, const struct sched_plan *b)
{
    assert_int_equal(a->lanes, b->lanes);
    assert_int_equal(a->stages, b->stages);
    assert_int_equal(a->micro_batches, b->micro_batches);
    assert_int_equal(a->copies, b->copies);
    assert_int_equal(a->chunks, b->chunks);
    for (int s = 0; s < a->copies * a->stages; s++)
        assert_int_equal(a->stage_lane[s], b->stage_lane[s]);
    for (int i = 0; i < a->lanes; i++) {
        assert_true(a->lane[i].n == b->lane[i].n);
        assert_memory_equal(a->lane[i].ops, b->lane[i].ops,
                            a->lane[i].n * sizeof(*a->lane[i].ops));
    }
}

/* Every schedule, alone and with transfers, comes back as it was: pairs, peers and
 * copies. */
static void round_trips(void **state)
{
    const struct sched_shape shape = {.lanes = 4, .micro_batches = 8};

    (void)state;
    for (int i = 0; sched_list[i]; i++)
        for (int comm = 0; comm < 2; comm++) {
            struct sched_plan plan, back;
            struct sched_error err;
            char *text;
            assert_int_equal(sched_make(&plan, sched_list[i], &shape, &err), 0);
            if (comm)
                assert_int_equal(sched_comm_insert(&plan, &err), 0);
            text = write_plan(&plan);
            if (parse(&back, text, &err))
                fail_msg("%s: %s", plan.name, err.text);
            assert_same(&plan, &back);
            sched_plan_fini(&back);
            sched_plan_fini(&plan);
            free(text);
        }
}

/* What others write and we read: blanks, quotes, empty cells, line ends, ops that say
 * nothing about the order. */
static void foreign_forms(void **state)
{
    static const char *const forms[] = {
        "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
        "\xef\xbb\xbf"
        "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n\r\n\n",
        " 0F0 ,\t0F1,,0B0,\"0B1\",,\n,,1F0,1B0,\" 1F1 \",1B1",
        "0UNSHARD,0F0,0F1,0WAIT_SEND_F0,0B0,0B1,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,0RESHARD\n"
        "1UNSHARD,1F0,1B0,1F1,1B1,1REDUCE_GRAD,1WAIT_SEND_B1\n",
    };
    struct sched_plan first, other;
    struct sched_error err;

    (void)state;
    assert_int_equal(parse(&first, forms[0], &err), 0);
    assert_int_equal(sched_check(&first, 0, &err), 0);
    for (size_t i = 1; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (parse(&other, forms[i], &err))
            fail_msg("%s: %s", forms[i], err.text);
        assert_same(&first, &other);
        sched_plan_fini(&other);
    }
    sched_plan_fini(&first);
    assert_int_equal(parse(&other, "( 0F1 ; 0B0 )OVERLAP_F_B", &err), 0);
    assert_int_equal(other.lane[0].n, 2);
    assert_int_equal(other.lane[0].ops[0].pair, 1);
    sched_plan_fini(&other);
}

static void bad_files(void **state)
{
    static const char *const files[][2] = {
        {"", "no ops"},
        {"\n\n ,, \n", "no ops"},
        {"0F0,0X0", "line 1, cell 2"},
        {"0F0,0B0\n1F0,F0", "line 2, cell 2"},
        {"0F", "line 1, cell 1"},
        {"F0", "line 1, cell 1"},
        {"0F0x", "\"0F0x\""},
        {"0f0", "is no op"},
        {"-1F0", "is no op"},
        {"0F-1", "is no op"},
        {"99999999999F0", "is no op"},
        {"0F99999999999999999999", "is no op"},
        {"2147483647F0", "is no op"},
        {"0STEP3", "is no op"},
        {"(0F0;0B0", "is no pair"},
        {"(0F0)OVERLAP_F_B", "is no pair"},
        {"(0F0;0B0)OVERLAP", "is no pair"},
        {"(0F0;0B0;0W0)OVERLAP_F_B", "is no op"},
        {"((0F0;0B0)OVERLAP_F_B;0F0)OVERLAP_F_B", "is no"},
        {"UNSHARD", "is no op"},
        {"0F0;0B0", "is no op"},
        {"0F0\t0B0", "?0B0"},
        {"2000000000F0", "stage 0: no lane has an op of it"},
        {"0F2000000000", "micro-batch 0: no lane has an op of it"},
        {"0F0,0F3,1F0,2F0", "stage 0, micro-batch 1: 0F1 is missing"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct sched_error err = {.text = ""};
        struct sched_plan plan;
        int rc = parse(&plan, files[i][0], &err);
        rc = rc ? rc : sched_check(&plan, 0, &err);
        assert_int_equal(rc, -EINVAL);
        if (!strstr(err.text, files[i][1]) || strchr(err.text, '\n'))
            fail_msg("%s: \"%s\" has no \"%s\"", files[i][0], err.text, files[i][1]);
        sched_plan_fini(&plan);
    }
}

/* Stages and micro-batches by the thousand, promised by few ops, need no large table. */
static void hostile_numbers(void **state)
{
    size_t n = 2000, len = 0;
    char *text = malloc(n * 32);
    struct sched_error err;
    struct sched_plan plan;

    (void)state;
    for (size_t i = 0; i < n; i++)
        len += (size_t)sprintf(text + len, "%zuF0,0F%zu,", i, i + 1);
    text[len - 1] = 0;
    assert_int_equal(parse(&plan, text, &err), 0);
    assert_int_equal(sched_check(&plan, 0, &err), -EINVAL);
    assert_string_equal(err.text, "lane 0, stage 1, micro-batch 1: 1F1 is missing");
    sched_plan_fini(&plan);
    free(text);
}

/* A lane more than there can be. */
static void too_many_rows(void **state)
{
    size_t rows = SCHED_MAX_LANES + 1;
    char *text = malloc(rows * 12);
    struct sched_error err;
    struct sched_plan plan;
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < rows; i++)
        len += (size_t)sprintf(text + len, "%zuF0\n", i);
    assert_int_equal(parse(&plan, text, &err), -EINVAL);
    assert_non_null(strstr(err.text, "65535 rows"));
    free(text);
}

static void ops_as_text(void **state)
{
    char text[SCHED_OP_TEXT];

    (void)state;
    for (int kind = 0; kind < SCHED_KIND_COUNT; kind++) {
        struct sched_op op = {
            .kind = (uint8_t)kind, .stage = 2147483646, .mb = 2147483646};
        struct sched_op back;
        if (kind == SCHED_STEP)
            op.mb = 0;
        sched_op_print(text, &op);
        assert_int_equal(sched_op_parse(&back, text, strlen(text)), 0);
        assert_memory_equal(&op, &back, sizeof(op));
        assert_int_equal(sched_op_parse(&back, text, strlen(text) - (kind == SCHED_STEP)),
                         kind == SCHED_STEP ? -EINVAL : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),   cmocka_unit_test(foreign_forms),
        cmocka_unit_test(bad_files),     cmocka_unit_test(hostile_numbers),
        cmocka_unit_test(too_many_rows), cmocka_unit_test(ops_as_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
