/* Written model folders: with the weights added, what is read back is the model that was
 * written. */
#include <math.h>

#include "stages/hf.h"
#include "stages/hf_write.h"
#include "stages/safetensors_write.h"
#include "tests/stages-tokenizers.h"

/* ---- Configurations and weights --------------------------------------------------------------- */

static void same_rope(const struct model_config *a, const struct model_config *b)
{
    enum { POSITIONS = 64 };
    float *x = calloc(POSITIONS * a->D, sizeof(*x));
    float *y = calloc(POSITIONS * a->D, sizeof(*y));

    model_rope_table(a, x, POSITIONS);
    model_rope_table(b, y, POSITIONS);
    for (size_t i = 0; i < POSITIONS * a->D; i++)
        assert_true(fabsf(x[i] - y[i]) <= (a->rope.factors ? 2e-5f : 0));
    free(x);
    free(y);
}

static void same_config(const struct model_config *a, const struct model_config *b)
{
    assert_string_equal(a->arch, b->arch);
    assert_true(a->V == b->V && a->C == b->C && a->L == b->L && a->H == b->H);
    assert_true(a->K == b->K && a->D == b->D && a->F == b->F);
    assert_int_equal(a->max_positions, b->max_positions);
    assert_true(a->norm_eps == b->norm_eps);
    assert_true(a->tied == b->tied && a->attn_bias == b->attn_bias);
    assert_true(a->o_bias == b->o_bias && a->mlp_bias == b->mlp_bias);
    assert_true(a->qk_norm == b->qk_norm);
    assert_int_equal(a->bos, b->bos);
    assert_int_equal(a->n_eos, b->n_eos);
    assert_memory_equal(a->eos, b->eos, (size_t)a->n_eos * sizeof(*a->eos));
    assert_true(a->rope.theta == b->rope.theta);
    if (!a->rope.factors)
        assert_int_equal(a->rope.kind, b->rope.kind);
    same_rope(a, b);
}

static bool inner(int w)
{
    return w >= MODEL_ATTN_NORM;
}

/* Calls for every weight of the model, in the order of its files. */
static void each_weight(const struct model *m, void *user,
                        void (*call)(void *, const struct model *, enum model_weight,
                                     size_t))
{
    for (size_t layer = 0; layer < m->config.L; layer++)
        for (int w = 0; w < MODEL_WEIGHT_COUNT; w++)
            if ((inner(w) || !layer) && model_weight_wanted(&m->config, w))
                call(user, m, w, layer);
}

static float *read_weight(const struct model *m, enum model_weight w, size_t layer,
                          size_t *n)
{
    size_t rows, cols;

    model_weight_shape(&m->config, w, &rows, &cols);
    *n = rows * cols;
    float *x = malloc(*n * sizeof(*x));
    assert_int_equal(model_read(m, x, w, layer, 0, rows), 0);
    return x;
}

struct items {
    struct safetensors_item item[512];
    char names[512][128];
    size_t n;
};

static void add_item(void *user, const struct model *m, enum model_weight w, size_t layer)
{
    struct items *items = user;
    struct safetensors_item *item = &items->item[items->n];
    char *name = items->names[items->n++];

    assert_true(items->n <= ARRAY_LEN(items->item));
    model_weight_name(name, sizeof(items->names[0]), w, layer);
    *item = (struct safetensors_item){.name = name, .dtype = DTYPE_F32};
    model_weight_shape(&m->config, w, &item->dims[0], &item->dims[1]);
    item->n_dims = item->dims[1] == 1 ? 1 : 2;
}

static void add_data(void *user, const struct model *m, enum model_weight w, size_t layer)
{
    size_t n;
    float *x = read_weight(m, w, layer, &n);

    assert_int_equal(safetensors_writer_add(user, x, n * sizeof(*x)), 0);
    free(x);
}

static void write_weights(const char *dir, const struct model *m)
{
    struct items *items = calloc(1, sizeof(*items));
    struct safetensors_writer *writer;
    char path[4200];

    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    each_weight(m, items, add_item);
    assert_int_equal(safetensors_writer_open(&writer, path, items->item, items->n, NULL),
                     0);
    each_weight(m, writer, add_data);
    assert_int_equal(safetensors_writer_close(writer, true), 0);
    free(items);
}

static void same_weight(void *user, const struct model *m, enum model_weight w,
                        size_t layer)
{
    size_t n;
    float *want = read_weight(m, w, layer, &n), *got = read_weight(user, w, layer, &n);

    assert_memory_equal(got, want, n * sizeof(*got));
    free(want);
    free(got);
}

/* "dtype" or "torch_dtype" of the written file. */
static void check_dtype(const char *dir, const char *key, const char *want)
{
    char path[4200];

    snprintf(path, sizeof(path), "%s/config.json", dir);
    json_t *root = read_json(path);
    assert_string_equal(json_string_value(json_object_get(root, key)), want);
    json_decref(root);
}

/* Writes the model, adds its weights, and opens what was written. */
static struct model *write_and_open(const struct model *m)
{
    struct model *back;

    files_create();
    assert_int_equal(hf_write(files_dir, m, "float32"), 0);
    check_dtype(files_dir, "torch_dtype", "float32");
    write_weights(files_dir, m);
    assert_int_equal(model_open(&back, files_dir), 0);
    same_config(&m->config, &back->config);
    each_weight(m, back, same_weight);
    return back;
}

static void folders(void **state)
{
    static const char *const names[] = {"reference/llama", "reference/llama-sharded-bf16",
                                        "reference/qwen2", "reference/qwen3",
                                        "data/tiny"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct model *m;
        assert_int_equal(model_open(&m, TEST_DATA(names[i])), 0);
        model_close(write_and_open(m));
        assert_int_equal(hf_write(files_dir, m, "bfloat16"), 0);
        check_dtype(files_dir, "torch_dtype", "bfloat16");
        if (!strncmp(names[i], "reference", 9))
            check_dtype(files_dir, "dtype", "bfloat16");
        model_close(m);
        files_remove();
    }
}

/* What is not about the element type stays, to the last digit. */
static void config_is_kept(void **state)
{
    struct model *m;

    (void)state;
    assert_int_equal(model_open(&m, TEST_DATA("reference/qwen3")), 0);
    model_close(write_and_open(m));
    json_t *want = read_json(TEST_DATA("reference/qwen3/config.json"));
    json_t *got = read_json(files_path("config.json"));
    json_object_del(got, "torch_dtype");
    assert_true(json_equal(got, want));
    json_decref(want);
    json_decref(got);
    model_close(m);
    files_remove();
}

static void gguf_file(void **state)
{
    struct model *m;

    (void)state;
    assert_int_equal(model_open(&m, TEST_DATA("data/tiny.gguf")), 0);
    assert_int_equal(m->config.n_eos, 2);
    m->config.rope.factors = NULL; /* of no known model */
    model_close(write_and_open(m));
    model_close(m);
    files_remove();
}

static void shapes(void **state)
{
    static const char *const archs[] = {"llama", "mistral", "qwen2", "qwen3"};
    struct model_config base = {.V = 96,
                                .C = 32,
                                .L = 2,
                                .H = 4,
                                .K = 2,
                                .D = 16,
                                .F = 64,
                                .max_positions = 4096,
                                .norm_eps = 1e-6f,
                                .rope = {.theta = 1e6, .factor = 1},
                                .bos = -1};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        for (int option = 0; option < 2; option++) {
            struct model_config c = base;
            struct model *m;
            strcpy(c.arch, archs[i]);
            c.tied = option;
            c.qk_norm = i == 3;
            c.o_bias = option && (i == 0 || i == 3);
            c.attn_bias = c.o_bias || i == 2;
            c.mlp_bias = option && i == 0;
            c.bos = option ? 3 : -1;
            c.n_eos = option ? 3 : (int)(i % 2);
            memcpy(c.eos, (int32_t[]){5, 90, 7}, 3 * sizeof(*c.eos));
            assert_int_equal(model_random(&m, &c, 1), 0);
            model_close(write_and_open(m));
            model_close(m);
            files_remove();
        }
}

static void named_shapes(void **state)
{
    static const char *const names[] = {"smollm2-135m", "llama-1b", "llama-8b"};

    (void)state;
    files_create();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct model *m;
        struct model_config c;
        assert_int_equal(model_open_shape(&m, names[i], 1), 0);
        assert_int_equal(hf_write(files_dir, m, "bfloat16"), 0);
        assert_int_equal(hf_config_open(&c, files_dir), 0);
        same_config(&m->config, &c);
        model_close(m);
    }
    files_remove();
}

/* Writes a configuration and reads it again. */
static struct model_config again(const struct model_config *c)
{
    struct model_config back;
    json_t *root;

    assert_int_equal(hf_config_json(&root, c, "float32", "test"), 0);
    char *text = json_dumps(root, 0);
    assert_int_equal(hf_config_parse(&back, text, strlen(text), "test"), 0);
    free(text);
    json_decref(root);
    return back;
}

static void ropes(void **state)
{
    struct model_config c, back;

    (void)state;
    assert_int_equal(model_shape(&c, "llama-1b"), 0);
    c.rope.kind = ROPE_LINEAR;
    c.rope.factor = 2.5;
    back = again(&c);
    same_config(&c, &back);
    c.rope.kind = ROPE_LLAMA3;
    c.rope.low_freq_factor = 2;
    c.rope.high_freq_factor = 5;
    c.rope.original_positions = 4096;
    back = again(&c);
    same_config(&c, &back);
    for (int option = 0; option < 4; option++) {
        c.rope.kind = ROPE_YARN;
        c.rope.beta_fast = option == 3 ? 24 : 32;
        c.rope.beta_slow = option == 3 ? 2 : 1;
        c.rope.truncate = option != 3;
        c.rope.attention_factor = option == 1 ? 1.25 : 0;
        c.rope.mscale = option == 2 ? 1 : 0;
        c.rope.mscale_all_dim = option == 2 ? 0.7 : 0;
        back = again(&c);
        same_config(&c, &back);
    }
}

/* A GGUF file has Llama 3's RoPE as divisors; other divisors cannot be written. */
static void rope_factors(void **state)
{
    struct model_config c, llama3, back;
    float table[2][64][2], scaled[2][64][2], factors[64];
    json_t *root;

    (void)state;
    assert_int_equal(model_shape(&c, "llama-8b"), 0);
    llama3 = c;
    llama3.rope.kind = ROPE_LLAMA3;
    llama3.rope.factor = 8;
    llama3.rope.low_freq_factor = 1;
    llama3.rope.high_freq_factor = 4;
    llama3.rope.original_positions = 8192;
    model_rope_table(&c, table[0][0], 2);
    model_rope_table(&llama3, scaled[0][0], 2);
    for (size_t i = 0; i < 64; i++) /* of the angle at position 1, from its sine */
        factors[i] = asinf(table[1][i][1]) / asinf(scaled[1][i][1]);
    factors[63] = 8;
    c.rope.factors = factors;
    back = again(&c);
    assert_int_equal(back.rope.kind, ROPE_LLAMA3);
    same_config(&llama3, &back);
    same_config(&c, &back);
    factors[30] *= 1.1f;
    struct capture capture = capture_begin();
    assert_int_equal(hf_config_json(&root, &c, "float32", "test"), -ENOTSUP);
    char *line = capture_end(capture);
    assert_true(capture_is_one_line(line));
    free(line);
}

/* ---- Errors ----------------------------------------------------------------------------------- */

static void refuse_write(const char *dir, const struct model *m, int want,
                         const char *about)
{
    struct capture capture = capture_begin();
    int err = hf_write(dir, m, "float32");
    char *line = capture_end(capture);

    assert_int_equal(err, want);
    assert_true(capture_is_one_line(line));
    assert_non_null(strstr(line, about));
    free(line);
}

static void bad_biases(void **state)
{
    struct model_config c;
    struct model *m;

    (void)state;
    assert_int_equal(model_shape(&c, "smollm2-135m"), 0);
    c.attn_bias = true;
    assert_int_equal(model_random(&m, &c, 1), 0);
    files_create();
    refuse_write(files_dir, m, -ENOTSUP, "biases");
    assert_int_not_equal(access(files_path("config.json"), F_OK), 0);
    files_remove();
    model_close(m);
}

static void bad_places(void **state)
{
    struct model *m;

    (void)state;
    assert_int_equal(model_open_shape(&m, "smollm2-135m", 1), 0);
    files_create();
    refuse_write(files_path("missing"), m, -ENOENT, "missing/config.json");
    files_write("file", "", 0);
    refuse_write(files_path("file"), m, -ENOTDIR, "file/config.json");
    assert_int_equal(symlink("/dev/full", files_path("config.json")), 0);
    refuse_write(files_dir, m, -ENOSPC, "config.json");
    if (geteuid() != 0) { /* who may write everywhere */
        assert_int_equal(mkdir(files_path("locked"), 0555), 0);
        refuse_write(files_path("locked"), m, -EACCES, "locked/config.json");
    }
    files_remove();
    model_close(m);
}

/* A folder that changed since it was opened. */
static void missing_source(void **state)
{
    char *from, *to;
    struct model *m, *copy;

    (void)state;
    assert_int_equal(model_open(&m, TEST_DATA("data/tiny")), 0);
    copy = write_and_open(m);
    from = strdup(files_dir);
    model_close(m);
    files_create();
    to = strdup(files_dir);
    strcpy(files_dir, from);
    assert_int_equal(unlink(files_path("config.json")), 0);
    refuse_write(to, copy, -ENOENT, "config.json");
    assert_int_equal(mkdir(files_path("config.json"), 0755), 0);
    refuse_write(to, copy, -EISDIR, "config.json");
    model_close(copy);
    files_remove();
    strcpy(files_dir, to);
    files_remove();
    free(from);
    free(to);
}

/* For scripts: MODEL FOLDER, or the random model of a SHAPE: --shape SHAPE FOLDER. */
static int write_folder(int argc, char **argv)
{
    bool shape = argc == 4;
    struct model *m;
    int err = shape ? model_open_shape(&m, argv[2], 1) : model_open(&m, argv[1]);

    if (!err)
        err = hf_write(argv[argc - 1], m, "float32");
    if (err)
        return 1;
    write_weights(argv[argc - 1], m);
    model_close(m);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders),      cmocka_unit_test(config_is_kept),
        cmocka_unit_test(gguf_file),    cmocka_unit_test(shapes),
        cmocka_unit_test(named_shapes), cmocka_unit_test(ropes),
        cmocka_unit_test(rope_factors), cmocka_unit_test(bad_biases),
        cmocka_unit_test(bad_places),   cmocka_unit_test(missing_source),
    };
    return argc > 1 ? write_folder(argc, argv)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
