/* Models as files describe them: values and RoPE tables against what transformers and
 * gguf-py make of the same files (tests/golden/stages-models.py), and the random ones. */
#include <jansson.h>
#include <math.h>
#include <pthread.h>

#include "stages/hf.h"
#include "stages/model.h"
#include "stages/safetensors.h"
#include "tests/stages-files.h"

static const char *const references[] = {"llama", "llama-sharded-bf16", "qwen2", "qwen3"};

static float *read_all(const struct model *m, enum model_weight w, size_t layer)
{
    const struct model_tensor *t = model_tensor(m, w, layer);
    float *x = malloc(t->rows * t->cols * sizeof(*x) + 1);

    assert_int_equal(model_read(m, x, w, layer, 0, t->rows), 0);
    return x;
}

static size_t elements(const struct model *m, enum model_weight w, size_t layer)
{
    return model_tensor(m, w, layer)->rows * model_tensor(m, w, layer)->cols;
}

static bool per_layer(int w)
{
    return w != MODEL_EMBED && w != MODEL_OUT_NORM && w != MODEL_HEAD;
}

static void check_sums(const struct model *m, enum model_weight w, size_t layer,
                       const json_t *sums)
{
    const json_t *want = json_object_get(sums, model_tensor(m, w, layer)->name);
    double by_place = 0, squares = 0;
    float *x = read_all(m, w, layer);

    for (size_t i = 0; i < elements(m, w, layer); i++) {
        by_place += (double)x[i] * (double)(i % 97 + 1);
        squares += (double)x[i] * (double)x[i];
    }
    free(x);
    assert_non_null(want);
    double place0 = json_number_value(json_array_get(want, 0));
    double squares0 = json_number_value(json_array_get(want, 1));
    assert_true(fabs(by_place - place0) <= 1e-9 * (1 + fabs(place0)));
    assert_true(fabs(squares - squares0) <= 1e-12 * squares0);
}

/* Every tensor of the files is bound to a role, and read as transformers reads it. */
static void reference_values(void **state)
{
    json_t *sums = json_load_file(TEST_DATA("data/sums.json"), 0, NULL);

    (void)state;
    assert_non_null(sums);
    for (size_t i = 0; i < ARRAY_LEN(references); i++) {
        const json_t *want = json_object_get(sums, references[i]);
        struct model *m;
        char name[64];
        size_t n = 0;
        snprintf(name, sizeof(name), "reference/%s", references[i]);
        assert_int_equal(model_open(&m, TEST_DATA(name)), 0);
        for (size_t layer = 0; layer < m->config.L; layer++)
            for (int w = 0; w < MODEL_WEIGHT_COUNT; w++) {
                if ((!per_layer(w) && layer) || !model_weight_wanted(&m->config, w))
                    continue;
                check_sums(m, w, layer, want);
                n++;
            }
        assert_int_equal(n, json_object_size(want));
        model_close(m);
    }
    json_decref(sums);
}

static void reference_configs(void **state)
{
    static const struct {
        const char *arch;
        size_t L, K, D;
        bool tied, attn_bias, qk_norm;
        double theta;
    } want[] = {
        {"llama", 4, 2, 16, false, false, false, 1e4},
        {"llama", 4, 2, 16, true, false, false, 1e4},
        {"qwen2", 3, 2, 16, true, true, false, 1e6},
        {"qwen3", 4, 1, 32, true, false, true, 1e4},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(references); i++) {
        struct model *m;
        char name[64];
        snprintf(name, sizeof(name), "reference/%s", references[i]);
        assert_int_equal(model_open(&m, TEST_DATA(name)), 0);
        const struct model_config *c = &m->config;
        assert_string_equal(c->arch, want[i].arch);
        assert_true(c->V == 384 && c->C == 64 && c->H == 4 && c->F == 160);
        assert_true(c->L == want[i].L && c->K == want[i].K && c->D == want[i].D);
        assert_int_equal(c->max_positions, 256);
        assert_int_equal(c->tied, want[i].tied);
        assert_int_equal(c->attn_bias, want[i].attn_bias);
        assert_int_equal(c->qk_norm, want[i].qk_norm);
        assert_false(c->o_bias || c->mlp_bias);
        assert_true(c->norm_eps == (i ? 1e-6f : 1e-5f));
        assert_true(c->rope.kind == ROPE_DEFAULT && c->rope.theta == want[i].theta);
        assert_true(c->n_eos == 1 && c->eos[0] == 2 && c->bos == 1);
        model_close(m);
    }
}

/* A tied model's head is its embedding; no layer index matters there. */
static void tied_head(void **state)
{
    struct model *m;

    (void)state;
    assert_int_equal(model_open(&m, TEST_DATA("reference/qwen2")), 0);
    assert_ptr_equal(model_tensor(m, MODEL_HEAD, 0), model_tensor(m, MODEL_EMBED, 0));
    assert_ptr_equal(model_tensor(m, MODEL_HEAD, 2), model_tensor(m, MODEL_EMBED, 0));
    assert_true(model_has(m, MODEL_HEAD, 0));
    assert_false(model_has(m, MODEL_Q_NORM, 0));
    assert_false(model_has(m, MODEL_O_BIAS, 1));
    assert_true(model_has(m, MODEL_Q_BIAS, 1));
    model_close(m);
}

/* The GGUF file, quantised and with permuted q and k, has the same values as the folder,
 * whatever rows are read at once. */
static void gguf_equals_folder(void **state)
{
    struct model *a, *b;

    (void)state;
    assert_int_equal(model_open(&a, TEST_DATA("data/tiny")), 0);
    assert_int_equal(model_open(&b, TEST_DATA("data/tiny.gguf")), 0);
    assert_true(b->config.attn_bias && b->config.o_bias && b->config.mlp_bias);
    for (size_t layer = 0; layer < a->config.L; layer++)
        for (int w = 0; w < MODEL_WEIGHT_COUNT; w++) {
            assert_int_equal(model_has(a, w, layer), model_has(b, w, layer));
            if (!model_has(a, w, layer))
                continue;
            size_t n = elements(a, w, layer), rows = model_tensor(a, w, layer)->rows;
            float *x = read_all(a, w, layer), *y = read_all(b, w, layer);
            assert_memory_equal(x, y, n * sizeof(*x));
            memset(y, 0, n * sizeof(*y));
            for (size_t r = 0; r < rows; r += 5)
                model_read(b, y + r * (n / rows), w, layer, r,
                           rows - r < 5 ? rows - r : 5);
            assert_memory_equal(x, y, n * sizeof(*x));
            free(x);
            free(y);
        }
    assert_true(a->config.n_eos == 2 && b->config.n_eos == 2);
    assert_memory_equal(a->config.eos, b->config.eos, 2 * sizeof(int32_t));
    assert_true(a->config.bos == 1 && b->config.bos == 1);
    model_close(a);
    model_close(b);
}

/* Compares a table with transformers' at the given positions. powf may differ in its last
 * bit, and a large position multiplies that: but not often, because every rounding to
 * fp32 is the same. */
static void check_table(const struct model_config *c,
                        const struct safetensors_tensor *want, const int32_t *positions,
                        size_t n)
{
    const size_t D = c->D, longest = (size_t)positions[n - 1] + 1;
    float *table = malloc(longest * D * sizeof(*table)), *w = malloc(want->bytes);
    size_t exact = 0;

    assert_true(want->n_dims == 3 && want->dims[0] == n && want->dims[1] == D / 2);
    memcpy(w, want->data, want->bytes);
    model_rope_table(c, table, longest);
    for (size_t p = 0; p < n; p++)
        for (size_t i = 0; i < D; i++) {
            double got = (double)table[(size_t)positions[p] * D + i];
            double error = fabs(got - (double)w[p * D + i]);
            double slack = i < 2 ? 0 : 1.3e-7 * positions[p];
            assert_true(error <= 2e-7 + slack);
            exact += error <= 2e-7;
        }
    assert_true((double)exact >= 0.96 * (double)(n * D));
    free(table);
    free(w);
}

static void rope_tables(void **state)
{
    struct safetensors *tables;
    int32_t positions[32];
    json_t *configs = json_load_file(TEST_DATA("data/rope.json"), 0, NULL), *config;
    const char *name;

    (void)state;
    assert_non_null(configs);
    assert_int_equal(safetensors_open(&tables, TEST_DATA("data/rope.safetensors")), 0);
    const struct safetensors_tensor *t = safetensors_find(tables, "positions");
    assert_true(t->dtype == DTYPE_I32 && t->bytes <= sizeof(positions));
    memcpy(positions, t->data, t->bytes);
    assert_int_equal(json_object_size(configs), tables->n - 1);
    json_object_foreach(configs, name, config)
    {
        struct model_config c;
        char *text = json_dumps(config, 0);
        assert_int_equal(hf_config_parse(&c, text, strlen(text), name), 0);
        free(text);
        const struct safetensors_tensor *want = safetensors_find(tables, name);
        assert_non_null(want);
        check_table(&c, want, positions, t->dims[0]);
    }
    json_decref(configs);
    safetensors_close(tables);
}

/* Llama 3's scaling as GGUF has it, as divisors, makes the same table. */
static void rope_factors(void **state)
{
    enum { POSITIONS = 256, D = 8 };
    static float x[POSITIONS * D], y[POSITIONS * D];
    struct model *a, *b;

    (void)state;
    assert_int_equal(model_open(&a, TEST_DATA("data/tiny")), 0);
    assert_int_equal(model_open(&b, TEST_DATA("data/tiny.gguf")), 0);
    assert_int_equal(a->config.rope.kind, ROPE_LLAMA3);
    assert_non_null(b->config.rope.factors);
    assert_true(b->config.rope.factors[D / 2 - 1] > 7.9f);
    model_rope_table(&a->config, x, POSITIONS);
    model_rope_table(&b->config, y, POSITIONS);
    for (int i = 0; i < POSITIONS * D; i++)
        assert_true(fabsf(x[i] - y[i]) <= 3e-5f);
    model_close(a);
    model_close(b);
}

/* Parameters of the named shapes, as their publishers count them. */
static void shapes(void **state)
{
    static const struct {
        const char *name;
        size_t parameters;
    } want[] = {
        {"smollm2-135m", 134515008},
        {"llama-1b", 1235814400},
        {"llama-8b", 8030261248},
    };
    struct model_config c;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        size_t n = 0, rows, cols;
        assert_int_equal(model_shape(&c, want[i].name), 0);
        for (int w = 0; w < MODEL_WEIGHT_COUNT; w++) {
            model_weight_shape(&c, w, &rows, &cols);
            n += model_weight_wanted(&c, w) ? rows * cols * (per_layer(w) ? c.L : 1) : 0;
        }
        assert_int_equal(n, want[i].parameters);
    }
    struct capture capture = capture_begin();
    int err = model_shape(&c, "llama-9b");
    char *text = capture_end(capture);
    assert_int_equal(err, -EINVAL);
    assert_true(capture_is_one_line(text));
    free(text);
}

static void check_moments(const float *x, size_t n)
{
    double sum = 0, squares = 0, beside = 0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        beside += i ? (double)x[i] * (double)x[i - 1] : 0;
    }
    double mean = sum / (double)n, deviation = sqrt(squares / (double)n);
    assert_true(fabs(mean) < 5 * 0.02 / sqrt((double)n));
    assert_true(fabs(deviation - 0.02) < 1e-4);
    assert_true(fabs(beside / squares) < 5 / sqrt((double)n));
}

/* Random weights depend on their place alone, look normal, and differ between places and
 * seeds. */
static void random_weights(void **state)
{
    struct model_config c;
    struct model *m, *other;
    float a[1536], b[1536], norm[3];

    (void)state;
    assert_int_equal(model_shape(&c, "smollm2-135m"), 0);
    assert_int_equal(model_random(&m, &c, 7), 0);
    assert_int_equal(model_random(&other, &c, 8), 0);
    float *x = read_all(m, MODEL_DOWN, 3);
    check_moments(x, elements(m, MODEL_DOWN, 3));
    assert_int_equal(model_read(m, a, MODEL_DOWN, 3, 17, 1), 0);
    assert_memory_equal(a, x + 17 * c.F, sizeof(a));
    assert_memory_not_equal(a, x + 18 * c.F, sizeof(a));
    assert_int_equal(model_read(m, b, MODEL_DOWN, 4, 17, 1), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(model_read(other, b, MODEL_DOWN, 3, 17, 1), 0);
    assert_memory_not_equal(a, b, sizeof(a));
    assert_int_equal(model_read(m, a, MODEL_EMBED, 0, 49151, 1), 0);
    assert_int_equal(model_read(m, b, MODEL_HEAD, 0, 49151, 1), 0);
    assert_memory_equal(a, b, c.C * sizeof(float));
    assert_int_equal(model_read(m, norm, MODEL_MLP_NORM, 0, 573, 3), 0);
    assert_true(norm[0] == 1 && norm[1] == 1 && norm[2] == 1);
    assert_true(model_has(m, MODEL_HEAD, 0));
    assert_false(model_has(m, MODEL_Q_BIAS, 0));
    free(x);
    model_close(m);
    model_close(other);
}

static void *read_again(void *arg)
{
    const struct model *m = arg;
    float *first = read_all(m, MODEL_DOWN, 1);

    for (int i = 0; i < 20; i++) {
        float *x = read_all(m, MODEL_DOWN, 1);
        assert_memory_equal(x, first, elements(m, MODEL_DOWN, 1) * sizeof(*x));
        free(x);
    }
    return first;
}

static void threads(void **state)
{
    pthread_t thread[4];
    struct model *m;
    void *x;

    (void)state;
    assert_int_equal(model_open(&m, TEST_DATA("data/tiny.gguf")), 0);
    float *want = read_all(m, MODEL_DOWN, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, read_again, m), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &x);
        assert_memory_equal(x, want, elements(m, MODEL_DOWN, 1) * sizeof(*want));
        free(x);
    }
    free(want);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_values), cmocka_unit_test(reference_configs),
        cmocka_unit_test(tied_head),        cmocka_unit_test(gguf_equals_folder),
        cmocka_unit_test(rope_tables),      cmocka_unit_test(rope_factors),
        cmocka_unit_test(shapes),           cmocka_unit_test(random_weights),
        cmocka_unit_test(threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
