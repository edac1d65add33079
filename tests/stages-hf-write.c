/* Written model folders: with the weights added, what is read back is the model that was
 * written. */
#include <math.h>

#include "stages/file.h"
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

/* ---- Tokenizers ------------------------------------------------------------------------------- */

/* The tokenizer of a GGUF file in memory, written into the test's folder. m->gguf stays open. */
static void write_gguf(struct model *m, const struct bytes *b, int want)
{
    *m = (struct model){.path = (char *)"test"};
    assert_int_equal(model_shape(&m->config, "smollm2-135m"), 0);
    assert_int_equal(gguf_parse(&m->gguf, b->data, b->n, "test"), 0);
    assert_int_equal(hf_write(files_dir, m, "float32"), want);
}

static struct tokenizer *open_written(void)
{
    struct model m = {.path = files_dir, .dir = files_dir};
    struct tokenizer *t;

    assert_int_equal(tokenizer_open(&t, &m), 0);
    assert_non_null(t);
    return t;
}

/* cases: lists or objects of text, ids, decoded text. */
static void check_cases(const struct tokenizer *t, const char *path, bool special)
{
    json_t *cases = read_json(TEST_DATA(path));

    assert_true(json_array_size(cases) >= 20);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        bool list = json_is_array(c);
        const json_t *text = list ? json_array_get(c, 0) : json_object_get(c, "text");
        const json_t *ids = list ? json_array_get(c, 1) : json_object_get(c, "ids");
        const json_t *back = list ? json_array_get(c, 2) : json_object_get(c, "decoded");
        check_case(t, path, json_string_value(text), ids, json_string_value(back),
                   special);
    }
    json_decref(cases);
}

static void byte_level_tokenizers(void **state)
{
    static const char *const names[][3] = {
        {"data/tokenizers/qwen2.json", "data/tokenizers/qwen2.cases.json", "qwen2"},
        {"data/tokenizers/smollm.json", "data/tokenizers/smollm.cases.json", "smollm"},
        {"data/tokenizers/tekken.json", "data/tokenizers/tekken.cases.json", "tekken"},
        {"data/tokenizers/deepseek-v3.json", "data/tokenizers/deepseek-v3.cases.json",
         "deepseek-v3"},
        {"data/tokenizers/deepseek-coder.json",
         "data/tokenizers/deepseek-coder.cases.json", "deepseek-coder"},
        {"data/tokenizers/deepseek-llm.json", "data/tokenizers/deepseek-llm.cases.json",
         "deepseek-llm"},
        {"reference/tok-gpt2/tokenizer.json", "reference/tok-gpt2/cases.json", "gpt-2"},
        {"reference/tok-llama3/tokenizer.json", "reference/tok-llama3/cases.json",
         "llama-bpe"},
    };
    (void)state;
    files_create();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *root = read_json(TEST_DATA(names[i][0]));
        struct bytes b = gguf_of_json(root, names[i][2], 0);
        struct model m;
        write_gguf(&m, &b, 0);
        struct tokenizer *t = open_written();
        check_cases(t, names[i][1], !strncmp(names[i][0], "reference", 9));
        tokenizer_close(t);
        gguf_close(m.gguf);
        free(b.data);
        json_decref(root);
    }
    files_remove();
}

/* Copied as they are. */
static void folder_tokenizers(void **state)
{
    static const char *const names[] = {"reference/tok-gpt2", "reference/tok-llama3"};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct model m = {.path = files_dir};
        snprintf(path, sizeof(path), "%s/tokenizer.json", names[i]);
        json_t *root = read_json(TEST_DATA(path));
        char *text = json_dumps(root, 0);
        files_create();
        files_write("tokenizer.json", text, strlen(text));
        files_write("tokenizer_config.json", "{}", 2);
        files_write("chat_template.jinja", "template", 8);
        files_write("config.json", "{}", 2);
        assert_int_equal(mkdir(files_path("out"), 0755), 0);
        m.dir = files_dir;
        assert_int_equal(hf_write(files_path("out"), &m, "float32"), 0);
        assert_int_equal(access(files_path("out/chat_template.jinja"), F_OK), 0);
        assert_int_equal(access(files_path("out/tokenizer_config.json"), F_OK), 0);
        assert_int_not_equal(access(files_path("out/merges.txt"), F_OK), 0);
        m.dir = (char *)files_path("out");
        struct tokenizer *t;
        assert_int_equal(tokenizer_open(&t, &m), 0);
        snprintf(path, sizeof(path), "%s/cases.json", names[i]);
        check_cases(t, path, true);
        tokenizer_close(t);
        free(text);
        json_decref(root);
        files_remove();
    }
}

static void sentencepiece(void **state)
{
    struct model m = {.path = (char *)"spm.gguf"};
    int32_t *ids;
    size_t n;

    (void)state;
    assert_int_equal(model_shape(&m.config, "smollm2-135m"), 0);
    assert_int_equal(gguf_open(&m.gguf, TEST_DATA("data/tokenizers/spm.gguf")), 0);
    files_create();
    assert_int_equal(hf_write(files_dir, &m, "float32"), 0);
    struct tokenizer *t = open_written();
    check_cases(t, "data/tokenizers/spm.cases.json", false);
    assert_int_equal(tokenizer_encode(t, &ids, &n, "", 0, true, true), 0);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], tokenizer_find(t, "<s>"));
    free(ids);
    tokenizer_close(t);
    gguf_close(m.gguf);
    files_remove();
}

/* The start token, and which tokens tokenizer_config.json names. */
static void start_and_special_tokens(void **state)
{
    json_t *root = read_json(TEST_DATA("data/tokenizers/qwen2.json"));
    int32_t *ids, start, plain;
    size_t n;

    (void)state;
    files_create();
    for (int add = 0; add < 2; add++) {
        struct bytes b = gguf_of_json(root, "qwen2", 5);
        struct tokenizer *t = parse_json(root);
        struct model m;
        start = tokenizer_find(t, "<|im_start|>"), plain = tokenizer_find(t, "a");
        tokenizer_close(t);
        gguf_put_int(&b, "tokenizer.ggml.bos_token_id", 4, (uint64_t)start, 4);
        gguf_put_int(&b, "tokenizer.ggml.eos_token_id", 4, 1 << 20, 4);
        gguf_put_int(&b, "tokenizer.ggml.padding_token_id", 4, (uint64_t)plain, 4);
        gguf_put_int(&b, "tokenizer.ggml.add_bos_token", 7, (uint64_t)add, 1);
        put_text_key(&b, "tokenizer.chat_template", "{{ bos_token }}");
        write_gguf(&m, &b, 0);
        t = open_written();
        assert_int_equal(tokenizer_encode(t, &ids, &n, "a", 1, true, true), 0);
        assert_int_equal(n, 1 + add);
        assert_int_equal(ids[0], add ? start : plain);
        free(ids);
        json_t *config = read_json(files_path("tokenizer_config.json"));
        assert_string_equal(json_string_value(json_object_get(config, "bos_token")),
                            "<|im_start|>");
        assert_null(json_object_get(config, "eos_token"));
        assert_null(json_object_get(config, "pad_token"));
        assert_string_equal(json_string_value(json_object_get(config, "chat_template")),
                            "{{ bos_token }}");
        json_decref(config);
        tokenizer_close(t);
        gguf_close(m.gguf);
        free(b.data);
    }
    json_decref(root);
    files_remove();
}

/* Two tokens of one text, and text that is no UTF-8. */
static void bad_vocabularies(void **state)
{
    static const char *const tokens[][2] = {{"a", "a"}, {"a", "\xff"}};

    (void)state;
    files_create();
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++) {
        struct bytes b = {0};
        struct model m;
        bytes_put(&b, "GGUF", 4);
        bytes_int(&b, 3, 4);
        bytes_int(&b, 0, 8);
        bytes_int(&b, 5, 8);
        put_text_key(&b, "tokenizer.ggml.model", "gpt2");
        put_text_key(&b, "tokenizer.ggml.pre", "gpt-2");
        put_array(&b, "tokenizer.ggml.tokens", 8, 2);
        gguf_put_string(&b, tokens[i][0]);
        gguf_put_string(&b, tokens[i][1]);
        put_array(&b, "tokenizer.ggml.token_type", 5, 2);
        bytes_int(&b, 1, 4);
        bytes_int(&b, 3, 4);
        put_array(&b, "tokenizer.ggml.merges", 8, 0);
        struct capture capture = capture_begin();
        write_gguf(&m, &b, -ENOTSUP);
        char *line = capture_end(capture);
        assert_true(capture_is_one_line(line));
        assert_non_null(strstr(line, "token"));
        assert_int_not_equal(access(files_path("tokenizer.json"), F_OK), 0);
        free(line);
        gguf_close(m.gguf);
        free(b.data);
    }
    files_remove();
}

/* ---- The real model --------------------------------------------------------------------------- */

static void same_ids(const struct tokenizer *a, const struct tokenizer *b,
                     const char *text, size_t len, bool special)
{
    int32_t *x, *y;
    size_t n, n_y, len_x, len_y;
    char *back_x, *back_y;

    assert_int_equal(tokenizer_encode(a, &x, &n, text, len, special, true), 0);
    assert_int_equal(tokenizer_encode(b, &y, &n_y, text, len, special, true), 0);
    assert_int_equal(n, n_y);
    assert_memory_equal(x, y, n * sizeof(*x));
    assert_int_equal(tokenizer_decode(a, &back_x, &len_x, x, n, special), 0);
    assert_int_equal(tokenizer_decode(b, &back_y, &len_y, x, n, special), 0);
    assert_int_equal(len_x, len_y);
    assert_memory_equal(back_x, back_y, len_x);
    free(back_x);
    free(back_y);
    free(x);
    free(y);
}

/* Texts of random pieces, of every kind. */
static void random_texts(const struct tokenizer *a, const struct tokenizer *b)
{
    static const char *const pieces[] = {"the",
                                         " river",
                                         "Water",
                                         "'ll",
                                         "'S",
                                         " 12345",
                                         "7",
                                         "3.14",
                                         " ",
                                         "   ",
                                         "\n",
                                         "\n\n",
                                         "\t",
                                         "\r\n",
                                         "\u00a0",
                                         "\u3000",
                                         "é",
                                         "e\u0301",
                                         "Straße",
                                         "水は",
                                         "한국어",
                                         "العربية",
                                         "हिन्दी",
                                         "😀",
                                         "①½²",
                                         "٣",
                                         "//",
                                         "<tag>",
                                         "<|im_start|>",
                                         "<|im_end|>",
                                         "<|endoftext|>",
                                         "<repo_name>",
                                         "def f(x):",
                                         "{}[]",
                                         "\xff",
                                         "\x80"};
    uint32_t seed = 1;
    char text[1024];

    for (int i = 0; i < 2000; i++) {
        size_t len = 0;
        for (int k = 0; k < 1 + i % 24; k++) {
            seed = seed * 1664525 + 1013904223;
            const char *piece = pieces[(seed >> 16) % ARRAY_LEN(pieces)];
            memcpy(text + len, piece, strlen(piece));
            len += strlen(piece);
        }
        same_ids(a, b, text, len, true);
        same_ids(a, b, text, len, false);
    }
}

static void same_chat(const struct model *a, const struct model *b)
{
    static const struct chat_message messages[] = {
        {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Hello."}, {"user", "?"}};
    static const size_t spans[][2] = {{0, 4}, {0, 2}, {1, 1}, {1, 3}};
    enum chat_form x, y;
    char *text_x, *text_y;

    assert_int_equal(chat_detect(&x, a), 0);
    assert_int_equal(chat_detect(&y, b), 0);
    assert_int_equal(x, y);
    for (size_t i = 0; i < ARRAY_LEN(spans); i++) {
        const struct chat_message *first = messages + spans[i][0];
        assert_int_equal(chat_render(&text_x, x, a, first, spans[i][1]), 0);
        assert_int_equal(chat_render(&text_y, x, b, first, spans[i][1]), 0);
        assert_string_equal(text_x, text_y);
        free(text_x);
        free(text_y);
    }
}

static void smollm2(void **state)
{
    const char *path = getenv("PENSTOCK_SMOLLM2");
    struct model *m, folder = {.path = files_dir, .dir = files_dir};
    struct model_config config;
    struct tokenizer *t, *back;
    struct file_map text;

    (void)state;
    if (!path || access(path, R_OK))
        skip();
    assert_int_equal(model_open(&m, path), 0);
    assert_int_equal(tokenizer_open(&t, m), 0);
    files_create();
    assert_int_equal(hf_write(files_dir, m, "bfloat16"), 0);
    assert_int_equal(hf_config_open(&config, files_dir), 0);
    same_config(&m->config, &config);
    back = open_written();
    assert_int_equal(tokenizer_size(back), tokenizer_size(t));
    assert_int_equal(file_map(&text, TEST_DATA("data/smollm2-text.txt")), 0);
    same_ids(t, back, (const char *)text.data, text.bytes, false);
    file_unmap(&text);
    random_texts(t, back);
    same_chat(m, &folder);
    tokenizer_close(back);
    tokenizer_close(t);
    model_close(m);
    files_remove();
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

/* For scripts. */

static int write_model(const struct model *m, const char *folder)
{
    int err = hf_write(folder, m, "float32");

    if (!err)
        write_weights(folder, m);
    return err != 0;
}

/* All but weights, for a tokenizer.json with the name of its pre-tokenizer. */
static int write_tokenizer(const char *path, const char *pre, const char *folder)
{
    json_t *root = read_json(path);
    struct bytes b = gguf_of_json(root, pre, 2);
    struct tokenizer *t = parse_json(root);
    struct model m;

    gguf_put_int(&b, "tokenizer.ggml.bos_token_id", 4,
                 (uint64_t)tokenizer_find(t, "<|endoftext|>"), 4);
    gguf_put_int(&b, "tokenizer.ggml.add_bos_token", 7, 1, 1);
    strcpy(files_dir, folder);
    write_gguf(&m, &b, 0);
    return 0;
}

static int write_gguf_tokenizer(const char *path, const char *folder)
{
    struct model m = {.path = (char *)path};

    return model_shape(&m.config, "smollm2-135m") || gguf_open(&m.gguf, path) ||
           hf_write(folder, &m, "float32");
}

/* MODEL FOLDER; --shape SHAPE FOLDER; --tokenizer FILE.json PRE FOLDER; --tokenizer
 * FILE.gguf FOLDER. */
static int write_folder(int argc, char **argv)
{
    struct model *m = NULL;

    if (argc == 3)
        return model_open(&m, argv[1]) || write_model(m, argv[2]);
    if (!strcmp(argv[1], "--shape"))
        return model_open_shape(&m, argv[2], 1) || write_model(m, argv[3]);
    return argc == 5 ? write_tokenizer(argv[2], argv[3], argv[4])
                     : write_gguf_tokenizer(argv[2], argv[3]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders),
        cmocka_unit_test(config_is_kept),
        cmocka_unit_test(gguf_file),
        cmocka_unit_test(shapes),
        cmocka_unit_test(named_shapes),
        cmocka_unit_test(ropes),
        cmocka_unit_test(rope_factors),
        cmocka_unit_test(bad_biases),
        cmocka_unit_test(bad_places),
        cmocka_unit_test(missing_source),
        cmocka_unit_test(byte_level_tokenizers),
        cmocka_unit_test(folder_tokenizers),
        cmocka_unit_test(sentencepiece),
        cmocka_unit_test(start_and_special_tokens),
        cmocka_unit_test(bad_vocabularies),
        cmocka_unit_test(smollm2),
    };
    return argc > 1 ? write_folder(argc, argv)
                    : cmocka_run_group_tests(tests, NULL, NULL);
}
