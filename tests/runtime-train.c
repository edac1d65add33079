/* Ten AdamW steps against losses computed in float64; and, at equal micro-batches, the same bits for every schedule,
 * number of lanes, link and order: losses, gradient norms, gradients and weights. */
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

static void train(struct result *r, const struct penstock_options *o,
                  const struct penstock_schedule *how)
{
    struct training t;
    *r = (struct result){0};
    assert_int_equal(training_open(&t, o, how, 8, (int)prompts[0].n - 1), 0);
    for (int i = 0; i < STEPS; i++) {
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
        {"reference/llama", "1f1b", "cpu:0,cpu:1", "copy", "strict", "layer"},
        {"reference/llama", "zb-h1", "cpu:0,cpu:1", "copy", "strict", "layer"},
        {"reference/llama", "zb-v", "cpu:0,cpu:1", "copy", "strict", "selective"},
        {"reference/qwen3", "gpipe", "cpu:0", "auto", "strict", "none"},
        {"reference/qwen3", "1f1b", "cpu:0,cpu:1", "copy", "strict", "selective"},
        {"reference/qwen3", "zb-v", "cpu:0,cpu:1", "copy", "prio", "none"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_match),
        cmocka_unit_test(every_way_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
