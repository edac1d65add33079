/* penstock_train from a data file to a checkpoint: ten AdamW steps against losses computed in float64, and the same bits
 * of losses, weights and optimizer state through every schedule, link and order. PENSTOCK_TEST_DEVICES moves it to other
 * lanes: a list, or one GPU's slices. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "runtime/penstock.h"
#include "stages/safetensors.h"
#include "tests/test.h"

#define STEPS 10

static const char *const models[] = {"reference/llama", "reference/llama-sharded-bf16",
                                     "reference/qwen2", "reference/qwen3"};
static char folder[64];
static int positions; /* of the stored sequences */

struct result {
    double loss[STEPS], norm[STEPS];
    uint64_t files; /* a hash of the checkpoint's weights and optimizer state */
};

static const char *devices(void)
{
    const char *list = getenv("PENSTOCK_TEST_DEVICES");
    return list ? list : "cpu:0,cpu:1";
}

static bool on_gpu(void)
{
    return strstr(devices(), "cuda") && !strstr(devices(), "cpu");
}

static char *in_folder(char *path, const char *name)
{
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

/* The sequences of a model's stored answers as a data file, and its losses. */
static void open_answers(float *losses, const char *model)
{
    char name[256];
    struct safetensors *s;
    snprintf(name, sizeof(name), "%s/reference.safetensors", model);
    assert_int_equal(safetensors_open(&s, TEST_DATA(name)), 0);
    const struct safetensors_tensor *t = safetensors_find(s, "train_ids");
    positions = (int)t->dims[1] - 1;
    FILE *f = fopen(in_folder(name, "ids.json"), "w");
    for (size_t i = 0; i < t->dims[0] * t->dims[1]; i++) {
        int32_t id;
        memcpy(&id, t->data + i * sizeof(id), sizeof(id));
        fprintf(f, "%s%d", !i ? "[[" : i % t->dims[1] ? "," : "],[", id);
    }
    fprintf(f, "]]");
    fclose(f);
    memcpy(losses, safetensors_find(s, "adamw_losses")->data, STEPS * sizeof(*losses));
    safetensors_close(s);
}

static uint64_t hash_file(uint64_t h, const char *name)
{
    char path[256];
    FILE *f = fopen(in_folder(path, name), "rb");
    assert_non_null(f);
    for (int c; (c = getc(f)) != EOF;)
        h = (h ^ (uint8_t)c) * 0x100000001b3;
    fclose(f);
    return h;
}

static int keep_step(void *user, const struct penstock_train_step *s)
{
    struct result *r = user;
    r->loss[s->step - 1] = s->loss;
    r->norm[s->step - 1] = s->grad_norm;
    for (int l = 0; l < s->n_lanes; l++)
        if (fabs((double)s->lane_bytes[l] / s->lane_bytes_predicted[l] - 1) > 0.03)
            fail_msg("%s: %zu bytes, predicted %zu", s->lanes[l], s->lane_bytes[l],
                     s->lane_bytes_predicted[l]);
    return 0;
}

static void clear_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s/run", folder);
    assert_int_equal(system(command), 0);
}

static void train(struct result *r, const char *model, const char *dtype,
                  const struct penstock_schedule *how, const char *link,
                  const char *order)
{
    char data[256], save[256];
    struct penstock_options o = {.model = TEST_DATA(model),
                                 .devices = devices(),
                                 .dtype = dtype,
                                 .link = link,
                                 .order = order};
    struct penstock_train work = {.data = in_folder(data, "ids.json"),
                                  .unpacked = true,
                                  .batch = 8,
                                  .positions = positions,
                                  .steps = STEPS,
                                  .lr = 1e-3,
                                  .decay = "none",
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .clip = 1,
                                  .save = in_folder(save, "run"),
                                  .on_step = keep_step,
                                  .user = r};
    *r = (struct result){0};
    clear_folder();
    if (penstock_train(&o, how, &work))
        fail_msg("%s, %s: refused", model, how->name);
    r->files = hash_file(0xcbf29ce484222325, "run/checkpoint-10/model.safetensors");
    r->files = hash_file(r->files, "run/checkpoint-10/optimizer.safetensors");
}

static void losses_match_by(const char *dtype, double limit)
{
    for (size_t k = 0; k < sizeof(models) / sizeof(*models); k++) {
        struct penstock_schedule how = {.name = "1f1b", .micro_batches = 8};
        struct result r;
        float want[STEPS];
        double worst = 0;
        if (strstr(models[k], "qwen2") && strstr(devices(), "/4")) /* three layers */
            continue;
        open_answers(want, models[k]);
        train(&r, models[k], dtype, &how, "auto", "strict");
        for (int i = 0; i < STEPS; i++)
            worst = fmax(worst, fabs(r.loss[i] / want[i] - 1));
        print_message("%s, %s: losses within %.2g\n", models[k], dtype, worst);
        if (!(worst <= limit))
            fail_msg("%s: losses are off by more than %g", models[k], limit);
    }
}

static void losses_match(void **state)
{
    (void)state;
    losses_match_by("fp32", on_gpu() ? 1e-4 : 1e-5);
    if (on_gpu())
        losses_match_by("bf16", 2e-2);
}

static void same_bits_by(const char *model, const char *dtype)
{
    static const struct {
        const char *schedule, *link, *order, *recompute;
    } ways[] = {
        {"gpipe", "copy", "strict", "none"},    {"1f1b", "host", "strict", "none"},
        {"1f1b-eager", "copy", "prio", "none"}, {"interleaved", "copy", "free", "none"},
        {"looped-bfs", "host", "free", "none"}, {"zb-h1", "copy", "strict", "layer"},
        {"zb-h2", "copy", "free", "selective"}, {"zb-v", "copy", "prio", "none"},
        {"v-half", "host", "strict", "none"},   {"dualpipev", "copy", "free", "layer"},
        {"chimera", "copy", "strict", "none"},  {"dualpipe", "host", "prio", "layer"},
        {"1f1b", "nccl", "strict", "none"},     {"zb-h1", "nccl", "free", "none"},
    };
    struct result want = {0}, got;
    float losses[STEPS];
    int ran = 0;

    open_answers(losses, model);
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        bool two = strchr(ways[i].schedule, 'v') || strstr(ways[i].schedule, "bfs");
        bool four = strstr(devices(), "/4");
        if ((two && four) || (!strcmp(ways[i].link, "nccl") && !on_gpu()))
            continue; /* the models have four layers */
        train(&got, model, dtype,
              &(struct penstock_schedule){.name = ways[i].schedule,
                                          .micro_batches = 8,
                                          .recompute = ways[i].recompute},
              ways[i].link, ways[i].order);
        want = ran++ ? want : got;
        if (memcmp(&got, &want, sizeof(got)))
            fail_msg("%s, %s: %s, %s, %s, recompute %s: other bits", model, dtype,
                     ways[i].schedule, ways[i].link, ways[i].order, ways[i].recompute);
    }
    assert_true(ran > 4);
    print_message("%s, %s: the same bits %d ways: %016llx\n", model, dtype, ran,
                  (unsigned long long)want.files);
}

static void every_way_gives_the_same_bits(void **state)
{
    (void)state;
    same_bits_by("reference/llama", "fp32");
    same_bits_by("reference/qwen3", "fp32");
    if (on_gpu()) {
        same_bits_by("reference/llama", "bf16");
        same_bits_by("reference/qwen3", "bf16");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_match),
        cmocka_unit_test(every_way_gives_the_same_bits),
    };
    strcpy(folder, "/tmp/penstock-train.XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    clear_folder();
    char path[256];
    unlink(in_folder(path, "ids.json"));
    rmdir(folder);
    return failed;
}
