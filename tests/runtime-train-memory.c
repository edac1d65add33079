/* Memory of training: what a lane's pages say after a step, against what was predicted before one was taken; the same
 * for any number of micro-batches where the schedule says so; less with recomputation. */
#include <stdio.h>

#include "runtime/training.h"
#include "tests/test.h"

#define POSITIONS 128
#define SEGS      4

struct bytes {
    size_t predicted, measured, activations; /* of a lane; of its stages */
};

/* Two steps of m equal micro-batches on two lanes. */
static void measure(struct bytes *lanes, const char *schedule, int m,
                    const char *recompute)
{
    struct penstock_options o = {.shape = TEST_DATA("data/deep/config.json"),
                                 .devices = "cpu:0,cpu:1"};
    struct penstock_schedule how = {
        .name = schedule, .micro_batches = m, .recompute = recompute};
    struct penstock_prompt *q = calloc(m * SEGS, sizeof(*q));
    int32_t ids[POSITIONS + 1];
    struct training t;
    double loss;

    for (int i = 0; i <= POSITIONS; i++)
        ids[i] = i * i % 384;
    for (int i = 0; i < m * SEGS; i++)
        q[i] = (struct penstock_prompt){ids, POSITIONS + 1};
    assert_int_equal(training_open(&t, &o, &how, m * SEGS, POSITIONS), 0);
    assert_int_equal(training_start(&t, &o), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(training_step(&t, &loss, q, m * SEGS), 0);
    for (int l = 0; l < 2; l++)
        lanes[l] = (struct bytes){t.trainer->lane_bytes[l],
                                  lane_resident(&t.machine.lanes.lanes[l]), 0};
    for (int i = 0; i < t.plan.stages; i++)
        lanes[t.plan.stage_lane[i]].activations +=
            t.trainer->stages[i].train->bytes.workspace;
    training_close(&t);
    free(q);
}

static void measured_is_as_predicted(void **state)
{
    static const char *const schedules[] = {
        "gpipe", "1f1b", "1f1b-eager", "interleaved", "looped-bfs", "zb-h1",
        "zb-h2", "zb-v", "v-half",     "dualpipev",   "chimera",    "dualpipe"};
    static const char *const recompute[] = {"none", "selective", "layer"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(schedules); i++)
        for (size_t k = 0; k < ARRAY_LEN(recompute); k++) {
            struct bytes b[2];
            measure(b, schedules[i], 8, recompute[k]);
            for (int l = 0; l < 2; l++)
                if (b[l].measured < 0.97 * b[l].predicted ||
                    b[l].measured > 1.03 * b[l].predicted)
                    fail_msg("%s, recompute %s, lane %d: %zu bytes, predicted %zu",
                             schedules[i], recompute[k], l, b[l].measured,
                             b[l].predicted);
        }
}

/* Only gpipe, of these, holds all micro-batches at once. */
static void more_micro_batches_take_no_more(void **state)
{
    static const char *const schedules[] = {"1f1b",  "1f1b-eager", "interleaved", "zb-h1",
                                            "zb-h2", "zb-v",       "dualpipev"};
    struct bytes few[2], many[2];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(schedules); i++) {
        measure(few, schedules[i], 8, "none");
        measure(many, schedules[i], 32, "none");
        for (int l = 0; l < 2; l++) {
            assert_int_equal(few[l].predicted, many[l].predicted);
            assert_int_equal(few[l].measured, many[l].measured);
        }
    }
    measure(few, "gpipe", 8, "none");
    measure(many, "gpipe", 32, "none");
    assert_true(many[0].measured > 3 * few[0].measured);
}

/* All that a stage has beside weights, gradients and optimizer, its work space included. A split backward keeps what it
 * computed again until its weight gradients are done, so it saves less. */
static void recomputation_takes_less(void **state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "1f1b-eager", "looped-bfs"};
    struct bytes none[2], layer[2];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(schedules); i++) {
        measure(none, schedules[i], 8, "none");
        measure(layer, schedules[i], 8, "layer");
        for (int l = 0; l < 2; l++)
            if (layer[l].activations > 0.4 * none[l].activations)
                fail_msg("%s, lane %d: %zu bytes of activations, %zu if recomputed",
                         schedules[i], l, none[l].activations, layer[l].activations);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_is_as_predicted),
        cmocka_unit_test(more_micro_batches_take_no_more),
        cmocka_unit_test(recomputation_takes_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
