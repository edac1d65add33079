/* Whole models against answers that others computed in float64: logits, greedy tokens; and against
 * themselves, bit for bit, cut in every way. PENSTOCK_TEST_DEVICES (lists of lanes, separated by spaces)
 * moves all of it to other lanes. */
#include <sched.h>
#include <string.h>

#include "runtime/penstock.h"
#include "stages/safetensors.h"
#include "tests/test.h"

#define MAX_LISTS 8

static const char *const models[] = {"reference/llama", "reference/llama-sharded-bf16",
                                     "reference/qwen2", "reference/qwen3"};

static const int layers[] = {4, 4, 3, 4};

static const char *lists[MAX_LISTS + 1]; /* of lanes, terminated by NULL */

/* Lanes on GPUs alone. Mixed lists compute in fp32 throughout, but each kind of lane rounds in its own
 * way, so that the bits depend on the cut. */
static bool on_gpu(const char *devices)
{
    return strstr(devices, "cuda") && !strstr(devices, "cpu");
}

static bool mixed(const char *devices)
{
    return strstr(devices, "cuda") && strstr(devices, "cpu");
}

static void find_lists(void)
{
    static char copy[512];
    const char *asked = getenv("PENSTOCK_TEST_DEVICES");
    cpu_set_t set;
    int n = 0;

    sched_getaffinity(0, sizeof(set), &set);
    if (!asked)
        asked = CPU_ISSET(0, &set) && CPU_ISSET(1, &set) ? "cpu:0 cpu:0,cpu:1 cpu:0-1"
                                                         : "auto";
    snprintf(copy, sizeof(copy), "%s", asked);
    for (char *word = strtok(copy, " "); word && n < MAX_LISTS; word = strtok(NULL, " "))
        lists[n++] = word;
}

/* One stage per lane, but no more than layers. */
static int stages_on(const char *devices, size_t model)
{
    const char *slash = strchr(devices, '/');
    int lanes = slash ? atoi(slash + 1) : 1;
    for (const char *c = devices; *c; c++)
        lanes += *c == ',';
    return lanes < layers[model] ? lanes : layers[model];
}

static const struct safetensors_tensor *answer(const struct safetensors *s,
                                               const char *name)
{
    const struct safetensors_tensor *t = safetensors_find(s, name);
    assert_non_null(t);
    return t;
}

/* The values of a tensor that may lie unaligned; freed by the caller. */
static void *values(const struct safetensors_tensor *t)
{
    void *copy = malloc(t->bytes);
    assert_non_null(copy);
    memcpy(copy, t->data, t->bytes);
    return copy;
}

static struct safetensors *open_answers(const char *model)
{
    char name[128];
    struct safetensors *s;
    snprintf(name, sizeof(name), "%s/reference.safetensors", model);
    assert_int_equal(safetensors_open(&s, TEST_DATA(name)), 0);
    return s;
}

struct ids {
    struct penstock_prompt *prompts; /* (n) */
    int n;
    int32_t *ids;
};

static struct ids ids_of(const struct safetensors *s, const char *name)
{
    const struct safetensors_tensor *t = answer(s, name);
    struct ids x = {.n = (int)t->dims[0], .ids = values(t)};
    x.prompts = calloc(x.n, sizeof(*x.prompts));
    for (int i = 0; i < x.n; i++)
        x.prompts[i] = (struct penstock_prompt){x.ids + i * t->dims[1], t->dims[1]};
    return x;
}

static void ids_free(struct ids *x)
{
    free(x->prompts);
    free(x->ids);
}

/* Logits of all sequences, one after the other; freed by the caller. */
static float *logits_of(const struct penstock_options *o, const struct ids *x, size_t V)
{
    size_t T = x->prompts[0].n;
    float *all = calloc(x->n * T * V, sizeof(*all));
    float **each = calloc(x->n, sizeof(*each));
    struct penstock_score_report report;

    for (int i = 0; i < x->n; i++)
        each[i] = all + i * T * V;
    assert_int_equal(
        penstock_score(&report, o, &(struct penstock_score){x->prompts, x->n, each}), 0);
    penstock_score_report_free(&report);
    free(each);
    return all;
}

static double squared_error(const float *a, const float *b, size_t n)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return error / norm;
}

static void check_logits(size_t m, const char *devices, const char *dtype, double limit)
{
    const char *model = models[m];
    struct safetensors *s = open_answers(model);
    const struct safetensors_tensor *t = answer(s, "logits");
    struct ids x = ids_of(s, "input_ids");
    struct penstock_options o = {.model = TEST_DATA(model),
                                 .devices = devices,
                                 .dtype = dtype,
                                 .stages = stages_on(devices, m)};
    size_t n = t->bytes / sizeof(float), V = t->dims[2];
    float *want = values(t), *got = logits_of(&o, &x, V);
    double error = squared_error(got, want, n);

    if (getenv("PENSTOCK_TEST_VERBOSE"))
        fprintf(stderr, "%-30s %-12s %-5s relative squared error %.2e\n", model, devices,
                dtype, error);
    if (!(error <= limit))
        fail_msg("%s on %s, %s: relative squared error %g > %g", model, devices, dtype,
                 error, limit);
    free(got);
    free(want);
    ids_free(&x);
    safetensors_close(s);
}

static void logits_match_float64(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (const char **d = lists; *d; d++) {
            check_logits(m, *d, "fp32", strstr(*d, "cuda") ? 1e-9 : 1e-10);
            if (on_gpu(*d))
                check_logits(m, *d, "bf16", 1e-3);
        }
}

static void greedy_tokens_match(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (const char **d = lists; *d; d++) {
            struct safetensors *s = open_answers(models[m]);
            struct ids x = ids_of(s, "greedy_prompt"), want = ids_of(s, "greedy_tokens");
            struct penstock_options o = {.model = TEST_DATA(models[m]),
                                         .devices = *d,
                                         .dtype = "fp32",
                                         .stages = stages_on(*d, m)};
            struct penstock_generate work = {
                .prompts = x.prompts,
                .n_prompts = x.n,
                .n_predict = (int)want.prompts[0].n,
                .ignore_eos = true,
                .sampling = {.repeat_penalty = 1, .top_p = 1}};
            struct penstock_report r;
            assert_int_equal(penstock_generate(&r, &o, &work), 0);
            assert_int_equal(r.sequences[0].n, want.prompts[0].n);
            assert_memory_equal(r.sequences[0].tokens, want.ids,
                                r.sequences[0].n * sizeof(int32_t));
            penstock_report_free(&r);
            ids_free(&x);
            ids_free(&want);
            safetensors_close(s);
        }
}

/* The same logits, to the bit, for every number of stages, link and order. */
static void check_cuts(size_t m, const char *devices, const char *dtype)
{
    const char *model = models[m];
    static const char *const cpu_links[] = {"copy", "host", NULL};
    static const char *const gpu_links[] = {"copy", "nccl", "host", NULL};
    const char *const *links = on_gpu(devices) ? gpu_links : cpu_links;
    struct safetensors *s = open_answers(model);
    size_t V = answer(s, "logits")->dims[2];
    struct ids x = ids_of(s, "input_ids");
    struct penstock_options o = {.model = TEST_DATA(model),
                                 .devices = devices,
                                 .dtype = dtype,
                                 .ubatch = 24,
                                 .stages = 1};
    float *want = logits_of(&o, &x, V);
    size_t bytes = x.n * x.prompts[0].n * V * sizeof(float);

    for (o.stages = 2; o.stages <= layers[m]; o.stages++)
        for (const char *const *link = links; *link; link++)
            for (int order = 0; order < 2; order++) {
                o.link = *link;
                o.order = order ? "prio" : "strict";
                float *got = logits_of(&o, &x, V);
                if (memcmp(got, want, bytes))
                    fail_msg("%s on %s, %s: %d stages over %s, %s, differ from one",
                             model, devices, dtype, o.stages, *link, o.order);
                free(got);
            }
    free(want);
    ids_free(&x);
    safetensors_close(s);
}

static void every_cut_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_LEN(models); m++)
        for (const char **d = lists; *d; d++) {
            if (mixed(*d))
                continue;
            check_cuts(m, *d, "fp32");
            if (on_gpu(*d))
                check_cuts(m, *d, "bf16");
        }
}

/* CPU lanes of any number of processors, and any number of lanes, give the same bits. */
static void lanes_do_not_change_bits(void **state)
{
    struct safetensors *s = open_answers("reference/llama");
    size_t V = answer(s, "logits")->dims[2];
    struct ids x = ids_of(s, "input_ids");
    size_t bytes = x.n * x.prompts[0].n * V * sizeof(float);
    float *want = NULL;

    (void)state;
    for (const char **d = lists; *d; d++) {
        struct penstock_options o = {.model = TEST_DATA("reference/llama"),
                                     .devices = *d};
        if (strstr(*d, "cuda"))
            continue;
        float *got = logits_of(&o, &x, V);
        if (!want)
            want = got;
        assert_memory_equal(got, want, bytes);
        if (got != want)
            free(got);
    }
    free(want);
    ids_free(&x);
    safetensors_close(s);
}

#define PROMPTS 32
#define NEW     12

/* Prompts of 1 to 40 tokens, always the same. */
static void make_prompts(struct penstock_prompt *p, int32_t *ids)
{
    uint32_t seed = 1;
    for (int i = 0; i < PROMPTS; i++) {
        p[i] = (struct penstock_prompt){ids, 1 + (i * 7) % 40};
        for (size_t t = 0; t < p[i].n; t++) {
            seed = seed * 1664525 + 1013904223;
            *ids++ = (int32_t)(seed >> 8) % 384;
        }
    }
}

static void generate(int32_t *out, const struct penstock_options *o,
                     const struct penstock_prompt *p, int n,
                     const struct penstock_sampling *sampling)
{
    struct penstock_generate work = {.prompts = p,
                                     .n_prompts = n,
                                     .n_predict = NEW,
                                     .ignore_eos = true,
                                     .sampling = *sampling};
    struct penstock_report r;
    assert_int_equal(penstock_generate(&r, o, &work), 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(r.sequences[i].n, NEW);
        memcpy(out + i * NEW, r.sequences[i].tokens, NEW * sizeof(*out));
    }
    penstock_report_free(&r);
}

static void many_prompts_equal_one_at_a_time(void **state)
{
    static const struct penstock_sampling greedy = {.top_p = 1, .repeat_penalty = 1};
    static int32_t ids[PROMPTS * 40], alone[PROMPTS * NEW], all[PROMPTS * NEW];
    static const struct {
        int ubatch, micro_batches;
        const char *order;
    } ways[] = {{0, 0, "strict"}, {7, 0, "strict"}, {0, 1, "strict"},
                {7, 5, "strict"}, {0, 3, "prio"},   {7, 32, "prio"}};
    struct penstock_prompt p[PROMPTS];

    (void)state;
    make_prompts(p, ids);
    for (const char **d = lists; *d; d++) {
        struct penstock_options o = {
            .model = TEST_DATA("reference/qwen3"), .devices = *d, .dtype = "fp32"};
        for (int i = 0; i < PROMPTS; i++)
            generate(alone + i * NEW, &o, p + i, 1, &greedy);
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            o.ubatch = ways[w].ubatch;
            o.micro_batches = ways[w].micro_batches;
            o.order = ways[w].order;
            generate(all, &o, p, PROMPTS, &greedy);
            if (memcmp(all, alone, sizeof(all)))
                fail_msg("%s: %d prompts at once, ubatch %d, %d micro-batches, %s, "
                         "differ from "
                         "one at a time",
                         *d, PROMPTS, o.ubatch, o.micro_batches, o.order);
        }
    }
}

/* Draws belong to (seed, sequence, position): the same however the work is cut. */
static void draws_do_not_depend_on_the_cut(void **state)
{
    static const struct penstock_sampling warm = {.temperature = 1.5F,
                                                  .top_k = 50,
                                                  .top_p = 0.95F,
                                                  .min_p = 0.01F,
                                                  .repeat_penalty = 1.1F,
                                                  .seed = 7};
    static int32_t ids[PROMPTS * 40], want[PROMPTS * NEW], got[PROMPTS * NEW];
    struct penstock_prompt p[PROMPTS];

    (void)state;
    make_prompts(p, ids);
    for (const char **d = lists; *d; d++) {
        if (mixed(*d))
            continue;
        struct penstock_options o = {.model = TEST_DATA("reference/llama"),
                                     .devices = *d,
                                     .dtype = "fp32",
                                     .stages = 1,
                                     .micro_batches = 4};
        generate(want, &o, p, PROMPTS, &warm);
        for (o.stages = 2; o.stages <= 4; o.stages++) {
            generate(got, &o, p, PROMPTS, &warm);
            assert_memory_equal(got, want, sizeof(got));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_match_float64),
        cmocka_unit_test(greedy_tokens_match),
        cmocka_unit_test(every_cut_gives_the_same_bits),
        cmocka_unit_test(lanes_do_not_change_bits),
        cmocka_unit_test(many_prompts_equal_one_at_a_time),
        cmocka_unit_test(draws_do_not_depend_on_the_cut),
    };
    find_lists();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
