/* The line that says who waits for whom when nothing moves. */
#include "runtime/engine.h"
#include "tests/test.h"

#define STAGES 3

static struct lane lanes[STAGES];
static struct lane_set set = {.lanes = lanes, .n = STAGES};
static int stage_lane[STAGES] = {0, 1, 2};
static struct engine engine = {
    .lanes = &set, .n_stages = STAGES, .stage_lane = stage_lane};

static struct op_task op(int kind, int stage, int mb, bool ended)
{
    return (struct op_task){.op = {.kind = kind, .stage = stage, .mb = mb},
                            .lane = stage,
                            .ended = ended,
                            .hop = kind == SCHED_RECV_F ? "RECV_F" : NULL,
                            .from = stage - 1};
}

static void names_the_receiver_and_where_the_sender_is(void **state)
{
    struct op_task ops[] = {op(SCHED_F, 0, 5, true), op(SCHED_RECV_F, 1, 5, true),
                            op(SCHED_F, 1, 5, false), op(SCHED_RECV_F, 2, 5, false),
                            op(SCHED_F, 2, 5, false)};
    struct step s = {.engine = &engine, .ops = ops, .n = ARRAY_LEN(ops)};
    char text[256];

    (void)state;
    watch_describe(text, sizeof(text), &s);
    assert_string_equal(text,
                        "lane 2 waits for RECV_F of stage 2, micro-batch 5, from lane 1, "
                        "which is at 1F5");
}

static void names_the_tokens(void **state)
{
    struct op_task ops[] = {op(SCHED_RECV_F, 0, 3, false), op(SCHED_F, 0, 3, false)};
    struct step s = {.engine = &engine, .ops = ops, .n = ARRAY_LEN(ops)};
    char text[256];

    (void)state;
    ops[0].hop = "the tokens";
    ops[0].from = 2;
    watch_describe(text, sizeof(text), &s);
    assert_string_equal(
        text, "lane 0 waits for the tokens of stage 0, micro-batch 3, from lane "
              "2, which is at its end");
}

static void names_the_op_that_does_not_finish(void **state)
{
    struct op_task ops[] = {op(SCHED_F, 0, 1, true), op(SCHED_F, 1, 0, false)};
    struct step s = {.engine = &engine, .ops = ops, .n = ARRAY_LEN(ops)};
    char text[256];

    (void)state;
    snprintf(lanes[1].spec.name, sizeof(lanes[1].spec.name), "cpu:1");
    watch_describe(text, sizeof(text), &s);
    assert_string_equal(text, "lane 1 (cpu:1) does not finish 1F0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_the_receiver_and_where_the_sender_is),
        cmocka_unit_test(names_the_tokens),
        cmocka_unit_test(names_the_op_that_does_not_finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
