/* Loss and gradients against answers computed in float64, for every schedule; and against each other, bit for
 * bit. PENSTOCK_TEST_DEVICES (a list of four lanes at least) moves it to other lanes. */
#include <math.h>
#include <string.h>

#include "runtime/penstock.h"
#include "stages/safetensors.h"
#include "tests/test.h"

static const char *const models[] = {"reference/llama", "reference/llama-sharded-bf16",
                                     "reference/qwen2", "reference/qwen3"};
static const char *const schedules[] = {
    "gpipe", "1f1b",   "1f1b-eager", "interleaved", "looped-bfs", "zb-h1", "zb-h2",
    "zb-v",  "v-half", "dualpipev",  "chimera",     "dualpipe",   "auto"};

struct answers {
    struct safetensors *file;
    int32_t *ids;
    struct penstock_prompt prompts[8];
    float loss, norm;
};

static void *copy_of(const struct safetensors *s, const char *name, size_t *bytes)
{
    const struct safetensors_tensor *t = safetensors_find(s, name);
    assert_non_null(t);
    void *copy = malloc(t->bytes);
    memcpy(copy, t->data, t->bytes);
    if (bytes)
        *bytes = t->bytes;
    return copy;
}

static float number(const struct safetensors *s, const char *name)
{
    float *x = copy_of(s, name, NULL), value = *x;
    free(x);
    return value;
}

static void open_answers(struct answers *a, const char *model)
{
    char name[128];
    snprintf(name, sizeof(name), "%s/reference.safetensors", model);
    assert_int_equal(safetensors_open(&a->file, TEST_DATA(name)), 0);
    const struct safetensors_tensor *t = safetensors_find(a->file, "train_ids");
    assert_int_equal(t->dims[0], 8);
    a->ids = copy_of(a->file, "train_ids", NULL);
    for (int i = 0; i < 8; i++)
        a->prompts[i] = (struct penstock_prompt){a->ids + i * t->dims[1], t->dims[1]};
    a->loss = number(a->file, "loss");
    a->norm = number(a->file, "grad_norm");
}

static void close_answers(struct answers *a)
{
    free(a->ids);
    safetensors_close(a->file);
}

static double distance(const float *a, const float *b, size_t n)
{
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    return sqrt(error / norm);
}

static void check_report(const struct answers *a, const struct penstock_grad_report *r,
                         double limit, const char *what)
{
    if (fabs(r->loss - a->loss) > limit / 10 * a->loss)
        fail_msg("%s: loss %.9g, expected %.9g", what, r->loss, a->loss);
    if (fabs(r->grad_norm - a->norm) > limit / 10 * a->norm)
        fail_msg("%s: gradient norm %.9g, expected %.9g", what, r->grad_norm, a->norm);
    for (size_t i = 0; i < r->n; i++) {
        char name[160];
        size_t bytes;
        snprintf(name, sizeof(name), "grad.%s", r->gradients[i].name);
        float *want = copy_of(a->file, name, &bytes);
        size_t n = r->gradients[i].rows * r->gradients[i].cols;
        assert_int_equal(bytes, n * sizeof(float));
        double d = distance(r->gradients[i].values, want, n);
        free(want);
        if (!(d <= limit))
            fail_msg("%s: %s is off by %g", what, name, d);
    }
}

/* The first `lanes` of the list; NULL if it cannot be cut so: slices of a GPU come all together. */
static const char *first_lanes(int lanes)
{
    static char list[256];
    const char *all = getenv("PENSTOCK_TEST_DEVICES"), *end;
    if (!all)
        all = "cpu:0,cpu:1,cpu:0,cpu:1";
    if (strchr(all, '/'))
        return atoi(strchr(all, '/') + 1) == lanes ? all : NULL;
    end = all;
    for (int i = 0; i < lanes; i++) {
        if (i && *end != ',')
            return NULL;
        end += i > 0;
        end += strcspn(end, ",");
    }
    snprintf(list, sizeof(list), "%.*s", (int)(end - all), all);
    return list;
}

static bool admits(const char *schedule, int lanes, int m, int layers)
{
    bool vee = !strcmp(schedule, "zb-v") || !strcmp(schedule, "v-half") ||
               !strcmp(schedule, "dualpipev");
    bool two = vee || !strcmp(schedule, "interleaved") || !strcmp(schedule, "looped-bfs");
    if (lanes * (two ? 2 : 1) > layers)
        return false;
    if (!strcmp(schedule, "dualpipev"))
        return m >= 2 * lanes;
    if (!strcmp(schedule, "chimera"))
        return lanes % 2 == 0;
    if (!strcmp(schedule, "dualpipe"))
        return lanes % 2 == 0 && m % 2 == 0 && m >= 2 * lanes;
    return strcmp(schedule, "interleaved") || m % lanes == 0;
}

static void gradients_match(void **state)
{
    static const int counts[] = {1, 2, 3, 8}, lanes[] = {1, 2, 4},
                     layers[] = {4, 4, 3, 4};
    int runs = 0;

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(models); k++) {
        struct answers a;
        open_answers(&a, models[k]);
        for (size_t s = 0; s < ARRAY_LEN(schedules); s++)
            for (size_t l = 0; l < ARRAY_LEN(lanes); l++)
                for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
                    struct penstock_options o = {.model = TEST_DATA(models[k]),
                                                 .devices = first_lanes(lanes[l]),
                                                 .dtype = "fp32"};
                    struct penstock_schedule how = {.name = schedules[s],
                                                    .micro_batches = counts[c]};
                    struct penstock_grad_report r;
                    char what[128];
                    if (!o.devices || !admits(how.name, lanes[l], counts[c], layers[k]))
                        continue;
                    snprintf(what, sizeof(what), "%s, %s, %d lanes, m = %d", models[k],
                             how.name, lanes[l], counts[c]);
                    if (penstock_grad(&r, &o, &how, a.prompts, 8))
                        fail_msg("%s: refused", what);
                    check_report(&a, &r, strstr(o.devices, "cuda") ? 1e-4 : 1e-5, what);
                    penstock_grad_report_free(&r);
                    runs++;
                }
        close_answers(&a);
    }
    assert_true(runs >= 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
