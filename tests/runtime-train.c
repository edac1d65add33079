/* Ten AdamW steps against losses computed in float64; and, at equal micro-batches, the same bits for every schedule,
 * number of lanes, link and order: losses, gradient norms, gradients and weights. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "runtime/training.h"
#include "stages/safetensors.h"
#include "tests/test.h"

#define STEPS 10

static struct safetensors *answers;
static int32_t *ids;
static struct penstock_prompt prompts[8];

static void open_answers(const char *model)
{
    char name[128];
    snprintf(name, sizeof(name), "%s/reference.safetensors", model);
    assert_int_equal(safetensors_open(&answers, TEST_DATA(name)), 0);
    const struct safetensors_tensor *t = safetensors_find(answers, "train_ids");
    ids = malloc(t->bytes);
    memcpy(ids, t->data, t->bytes);
    for (int i = 0; i < 8; i++)
        prompts[i] = (struct penstock_prompt){ids + i * t->dims[1], t->dims[1]};
}

static void close_answers(void)
{
    free(ids);
    safetensors_close(answers);
}

/* What a run leaves: a hash of everything that must be the same. */
struct result {
    double loss[STEPS], norm[STEPS];
    uint64_t weights, gradients;
};

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ p[i]) * 0x100000001b3;
    return h;
}

static uint64_t hash_all(struct training *t, enum trainer_what what)
{
    const struct model_config *c = &t->machine.model->config;
    uint64_t h = 0xcbf29ce484222325;
    for (int w = 0; w < MODEL_WEIGHT_COUNT; w++)
        for (size_t l = 0; l < (w < MODEL_ATTN_NORM ? 1 : c->L); l++) {
            size_t rows, cols;
            if (!model_weight_wanted(c, w))
                continue;
            model_weight_shape(c, w, &rows, &cols);
            float *x = malloc(rows * cols * sizeof(*x));
            assert_int_equal(trainer_read(t->trainer, x, what, w, l), 0);
            h = hash(h, x, rows * cols * sizeof(*x));
            free(x);
        }
    return h;
}

/* passes: over the same sequences before each of AdamW's steps. */
static void train_passes(struct result *r, const struct penstock_options *o,
                         const struct penstock_schedule *how, int steps, int passes)
{
    struct training t;
    *r = (struct result){0};
    assert_int_equal(training_open(&t, o, how, 8, (int)prompts[0].n - 1), 0);
    assert_int_equal(training_start(&t, o), 0);
    for (int i = 0; i < steps; i++) {
        for (int k = 0; k < passes; k++)
            assert_int_equal(training_step(&t, &r->loss[i], prompts, 8), 0);
        assert_int_equal(trainer_finish(t.trainer, &r->norm[i]), 0);
        if (!i)
            r->gradients = hash_all(&t, TRAINER_GRAD);
        struct kernel_adamw p = {.lr = 1e-3F,
                                 .beta1 = 0.9F,
                                 .beta2 = 0.95F,
                                 .eps = 1e-8F,
                                 .weight_decay = 0.1F,
                                 .correction1 = (float)(1 - pow(0.9, i + 1)),
                                 .correction2 = (float)(1 - pow(0.95, i + 1)),
                                 .scale = (float)fmin(1, 1 / (r->norm[i] + 1e-6))};
        assert_int_equal(trainer_adamw(t.trainer, &p), 0);
    }
    r->weights = hash_all(&t, TRAINER_WEIGHT);
    training_close(&t);
}

static void train(struct result *r, const struct penstock_options *o,
                  const struct penstock_schedule *how)
{
    train_passes(r, o, how, STEPS, 1);
}

static void losses_match(void **state)
{
    static const char *const models[] = {"reference/llama",
                                         "reference/llama-sharded-bf16",
                                         "reference/qwen2", "reference/qwen3"};
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(models); k++) {
        struct result r;
        float want[STEPS];
        open_answers(models[k]);
        memcpy(want, safetensors_find(answers, "adamw_losses")->data, sizeof(want));
        train(&r,
              &(struct penstock_options){.model = TEST_DATA(models[k]),
                                         .devices = "cpu:0,cpu:1"},
              &(struct penstock_schedule){.name = "1f1b", .micro_batches = 4});
        for (int i = 0; i < STEPS; i++)
            if (fabs(r.loss[i] - want[i]) > 1e-5 * want[i])
                fail_msg("%s, step %d: loss %.8f, expected %.8f", models[k], i, r.loss[i],
                         want[i]);
        close_answers();
    }
}

static void every_way_gives_the_same_bits(void **state)
{
    static const struct {
        const char *model, *schedule, *devices, *link, *order, *recompute;
    } ways[] = {
        {"reference/llama", "gpipe", "cpu:0", "auto", "strict", "none"},
        {"reference/llama", "1f1b", "cpu:0,cpu:1", "copy", "strict", "none"},
        {"reference/llama", "1f1b-eager", "cpu:0,cpu:1,cpu:0,cpu:1", "host", "strict",
         "none"},
        {"reference/llama", "interleaved", "cpu:0,cpu:1", "copy", "prio", "none"},
        {"reference/llama", "looped-bfs", "cpu:0,cpu:1", "host", "strict", "none"},
        {"reference/llama", "zb-h1", "cpu:0,cpu:1,cpu:0,cpu:1", "copy", "strict", "none"},
        {"reference/llama", "zb-h2", "cpu:0,cpu:1", "copy", "prio", "none"},
        {"reference/llama", "zb-v", "cpu:0,cpu:1", "copy", "strict", "none"},
        {"reference/llama", "dualpipev", "cpu:0,cpu:1", "copy", "strict", "none"},
        {"reference/llama", "chimera", "cpu:0,cpu:1", "copy", "strict", "none"},
        {"reference/llama", "chimera", "cpu:0,cpu:1,cpu:0,cpu:1", "host", "prio", "none"},
        {"reference/llama", "dualpipe", "cpu:0,cpu:1", "copy", "strict", "none"},
        {"reference/llama", "dualpipe", "cpu:0,cpu:1,cpu:0,cpu:1", "copy", "free",
         "layer"},
        {"reference/llama", "1f1b", "cpu:0,cpu:1", "copy", "strict", "layer"},
        {"reference/llama", "zb-h1", "cpu:0,cpu:1", "copy", "strict", "layer"},
        {"reference/llama", "zb-v", "cpu:0,cpu:1", "copy", "strict", "selective"},
        {"reference/qwen3", "gpipe", "cpu:0", "auto", "strict", "none"},
        {"reference/qwen3", "1f1b", "cpu:0,cpu:1", "copy", "strict", "selective"},
        {"reference/qwen3", "zb-v", "cpu:0,cpu:1", "copy", "prio", "none"},
        {"reference/qwen3", "chimera", "cpu:0,cpu:1", "copy", "strict", "selective"},
        {"reference/qwen3", "dualpipe", "cpu:0,cpu:1,cpu:0,cpu:1", "host", "strict",
         "none"},
        {"reference/qwen3", "zb-h1", "cpu:0,cpu:1,cpu:0,cpu:1", "copy", "strict",
         "layer"},
    };
    struct result want = {0}, got;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        bool first = !i || strcmp(ways[i].model, ways[i - 1].model) != 0;
        open_answers(ways[i].model);
        train(&got,
              &(struct penstock_options){.model = TEST_DATA(ways[i].model),
                                         .devices = ways[i].devices,
                                         .link = ways[i].link,
                                         .order = ways[i].order},
              &(struct penstock_schedule){.name = ways[i].schedule,
                                          .micro_batches = 8,
                                          .recompute = ways[i].recompute});
        close_answers();
        want = first ? got : want;
        if (memcmp(&got, &want, sizeof(got)))
            fail_msg("%s, %s on %s, %s, %s, recompute %s: other bits", ways[i].model,
                     ways[i].schedule, ways[i].devices, ways[i].link, ways[i].order,
                     ways[i].recompute);
    }
}

static void two_copies_like_1f1b(const char *model, int m, int passes)
{
    static const struct {
        const char *schedule, *devices;
        int lanes, least; /* micro-batches */
    } ways[] = {{"chimera", "cpu:0,cpu:1", 2, 1},
                {"chimera", "cpu:0,cpu:1,cpu:0,cpu:1", 4, 1},
                {"dualpipe", "cpu:0,cpu:1", 2, 4},
                {"dualpipe", "cpu:0,cpu:1,cpu:0,cpu:1", 4, 8}};
    struct penstock_options o = {.model = TEST_DATA(model), .devices = "cpu:0"};
    struct result want, got;

    train_passes(&want, &o,
                 &(struct penstock_schedule){.name = "1f1b", .micro_batches = m}, 2,
                 passes);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        if (m < ways[i].least || (ways[i].least > 1 && m % 2) ||
            (ways[i].lanes == 4 && !strcmp(model, "reference/qwen2")))
            continue; /* of three layers */
        o.devices = ways[i].devices;
        train_passes(
            &got, &o,
            &(struct penstock_schedule){.name = ways[i].schedule, .micro_batches = m}, 2,
            passes);
        if (memcmp(&got, &want, sizeof(got)))
            fail_msg("%s, %s on %d lanes, m = %d, %d passes: other bits", model,
                     ways[i].schedule, ways[i].lanes, m, passes);
    }
}

static void two_copies_give_the_same_bits(void **state)
{
    static const char *const models[] = {"reference/llama",
                                         "reference/llama-sharded-bf16",
                                         "reference/qwen2", "reference/qwen3"};
    static const int counts[] = {1, 2, 3, 4, 8};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(models); k++) {
        open_answers(models[k]);
        for (size_t c = 0; c < ARRAY_LEN(counts); c++)
            two_copies_like_1f1b(models[k], counts[c], 1);
        two_copies_like_1f1b(models[k], 4, 2);
        close_answers();
    }
}

/* More rows than a matrix product takes at once, and than the head does: 796 in a micro-batch of four. */
static void two_copies_of_many_rows(void **state)
{
    static int32_t long_ids[8 * 200];

    (void)state;
    for (int i = 0; i < (int)ARRAY_LEN(long_ids); i++)
        long_ids[i] = (int32_t)((long)i * i * 31 + i * 7) % 384;
    for (int i = 0; i < 8; i++)
        prompts[i] = (struct penstock_prompt){long_ids + 200 * i, 200};
    two_copies_like_1f1b("reference/llama", 2, 1);
    two_copies_like_1f1b("reference/qwen3", 4, 1);
}

static void shapes_are_refused(void **state)
{
    static const struct {
        const char *schedule, *devices;
        int m;
    } shapes[] = {{"chimera", "cpu:0,cpu:1,cpu:0", 4},
                  {"dualpipe", "cpu:0,cpu:1,cpu:0", 8},
                  {"dualpipe", "cpu:0,cpu:1", 3},
                  {"dualpipe", "cpu:0,cpu:1,cpu:0,cpu:1", 6},
                  {"chimera", "cpu:0,cpu:1,cpu:0,cpu:1,cpu:0,cpu:1", 8}};
    struct training t;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        assert_int_equal(
            training_open(
                &t,
                &(struct penstock_options){.model = TEST_DATA("reference/llama"),
                                           .devices = shapes[i].devices},
                &(struct penstock_schedule){.name = shapes[i].schedule,
                                            .micro_batches = shapes[i].m},
                8, 47),
            -EINVAL);
}

/* A second copy has no optimizer state: its prediction, which is what is taken, says so. */
static void the_second_copy_is_smaller(void **state)
{
    struct penstock_options o = {.model = TEST_DATA("reference/llama"),
                                 .devices = "cpu:0,cpu:1"};
    struct penstock_schedule how = {.name = "chimera", .micro_batches = 2};
    struct penstock_report r = {0};
    struct training t;

    (void)state;
    assert_int_equal(training_open(&t, &o, &how, 2, 1), 0);
    assert_int_equal(training_start(&t, &o), 0);
    assert_int_equal(training_report(&t, &r), 0);
    assert_int_equal(r.n_stages, 4);
    for (int i = 0; i < 4; i++) {
        const struct params *p = &t.trainer->stages[i].stage->params;
        size_t least = p->elements * sizeof(float) * (i < 2 ? 4 : 2);
        assert_int_equal(r.stages[i].index, i % 2);
        assert_int_equal(r.stages[i].bytes_predicted, r.stages[i].bytes_measured);
        assert_in_range(r.stages[i].bytes_predicted, least, least * 5 / 4);
    }
    assert_string_equal(r.stages[0].lane, r.stages[3].lane);
    assert_string_equal(r.stages[1].lane, r.stages[2].lane);
    penstock_report_free(&r);
    training_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_match),
        cmocka_unit_test(every_way_gives_the_same_bits),
        cmocka_unit_test(two_copies_give_the_same_bits),
        cmocka_unit_test(two_copies_of_many_rows),
        cmocka_unit_test(shapes_are_refused),
        cmocka_unit_test(the_second_copy_is_smaller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
