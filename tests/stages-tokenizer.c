/* Tokenizers against the libraries that the files were made for: tests/reference, and
 * tests/data/tokenizers (tests/golden/stages-tokenizers.py). */
#include <dirent.h>

#include "tests/stages-tokenizers.h"

static void reference(void **state)
{
    static const char *const names[] = {"tok-gpt2", "tok-llama3"};
    char path[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "reference/%s", names[i]);
        struct model m = {.path = path, .dir = (char *)TEST_DATA(path)};
        struct tokenizer *t;
        assert_int_equal(tokenizer_open(&t, &m), 0);
        assert_int_equal(tokenizer_size(t), 1003);
        assert_int_equal(tokenizer_find(t, "<|im_end|>"), 1002);
        snprintf(path, sizeof(path), "reference/%s/cases.json", names[i]);
        json_t *cases = read_json(TEST_DATA(path));
        assert_int_equal(json_array_size(cases), 20);
        for (size_t k = 0; k < json_array_size(cases); k++) {
            const json_t *c = json_array_get(cases, k);
            check_case(t, names[i], json_string_value(json_object_get(c, "text")),
                       json_object_get(c, "ids"),
                       json_string_value(json_object_get(c, "decoded")), true);
        }
        json_decref(cases);
        tokenizer_close(t);
    }
}

static void check_cases(const struct tokenizer *t, const char *name)
{
    char path[96];

    snprintf(path, sizeof(path), "data/tokenizers/%s.cases.json", name);
    json_t *cases = read_json(TEST_DATA(path));
    assert_true(json_array_size(cases) > 20);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        check_case(t, name, json_string_value(json_array_get(c, 0)), json_array_get(c, 1),
                   json_string_value(json_array_get(c, 2)), false);
    }
    json_decref(cases);
}

static json_t *read_tokenizer(const char *name)
{
    char path[96];
    snprintf(path, sizeof(path), "data/tokenizers/%s.json", name);
    return read_json(TEST_DATA(path));
}

/* Every tokenizer of the folder. */
static void libraries(void **state)
{
    DIR *dir = opendir(TEST_DATA("data/tokenizers"));
    const struct dirent *entry;
    int n = 0;

    (void)state;
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        char name[64];
        snprintf(name, sizeof(name), "%.63s", entry->d_name);
        char *dot = strstr(name, ".cases.json");
        if (!dot || !strncmp(name, "spm", 3))
            continue;
        *dot = '\0';
        json_t *root = read_tokenizer(name);
        struct tokenizer *t = parse_json(root);
        check_cases(t, name);
        tokenizer_close(t);
        json_decref(root);
        n++;
    }
    closedir(dir);
    assert_int_equal(n, 22);
}

/* Merges as "a b" instead of ["a", "b"]. */
static void merge_strings(void **state)
{
    json_t *root = read_tokenizer("qwen2");
    json_t *model = json_object_get(root, "model");
    json_t *merges = json_object_get(model, "merges"), *lines = json_array();
    char line[256];

    (void)state;
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *m = json_array_get(merges, i);
        snprintf(line, sizeof(line), "%s %s", json_string_value(json_array_get(m, 0)),
                 json_string_value(json_array_get(m, 1)));
        json_array_append_new(lines, json_string(line));
    }
    json_object_set_new(model, "merges", lines);
    struct tokenizer *t = parse_json(root);
    check_cases(t, "qwen2");
    tokenizer_close(t);
    json_decref(root);
}

/* The same tokenizers from GGUF metadata, where the pre-tokenizer is a name. */
static void gguf_names(void **state)
{
    static const char *const names[][2] = {
        {"qwen2", "qwen2"},
        {"smollm", "smollm"},
        {"deepseek-v3", "deepseek-v3"},
        {"tekken", "tekken"},
        {"deepseek-coder", "deepseek-coder"},
        {"deepseek-llm", "deepseek-llm"},
    };
    int err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *root = read_tokenizer(names[i][0]);
        struct bytes b = gguf_of_json(root, names[i][1], 0);
        struct tokenizer *t = open_gguf_bytes(&b, &err);
        assert_int_equal(err, 0);
        check_cases(t, names[i][0]);
        tokenizer_close(t);
        free(b.data);
        json_decref(root);
    }
}

static void gguf_reference(void **state)
{
    static const char *const names[][2] = {
        {"tok-gpt2", "gpt-2"}, {"tok-gpt2", "default"}, {"tok-llama3", "llama-bpe"}};
    char path[64];
    int err;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(path, sizeof(path), "reference/%s/tokenizer.json", names[i][0]);
        json_t *root = read_json(TEST_DATA(path));
        struct bytes b = gguf_of_json(root, names[i][1], 0);
        struct tokenizer *t = open_gguf_bytes(&b, &err);
        assert_int_equal(err, 0);
        snprintf(path, sizeof(path), "reference/%s/cases.json", names[i][0]);
        json_t *cases = read_json(TEST_DATA(path));
        for (size_t k = 0; k < json_array_size(cases); k++) {
            const json_t *c = json_array_get(cases, k);
            check_case(t, names[i][1], json_string_value(json_object_get(c, "text")),
                       json_object_get(c, "ids"),
                       json_string_value(json_object_get(c, "decoded")), true);
        }
        json_decref(cases);
        tokenizer_close(t);
        free(b.data);
        json_decref(root);
    }
}

static void sentencepiece(void **state)
{
    struct model m = {.path = (char *)"spm.gguf"};
    struct tokenizer *t;
    int32_t *ids;
    size_t n;

    (void)state;
    assert_int_equal(gguf_open(&m.gguf, TEST_DATA("data/tokenizers/spm.gguf")), 0);
    assert_int_equal(tokenizer_open(&t, &m), 0);
    gguf_close(m.gguf);
    check_cases(t, "spm");
    /* A start token unless the file says no. */
    assert_int_equal(tokenizer_encode(t, &ids, &n, "", 0, true, true), 0);
    assert_int_equal(n, 1);
    assert_int_equal(ids[0], tokenizer_find(t, "<s>"));
    free(ids);
    tokenizer_close(t);
}

static void expect(const struct tokenizer *t, const char *text, bool special, bool bos,
                   const int32_t *want, size_t want_n)
{
    int32_t *ids;
    size_t n;

    assert_int_equal(tokenizer_encode(t, &ids, &n, text, strlen(text), special, bos), 0);
    assert_int_equal(n, want_n);
    assert_memory_equal(ids, want, n * sizeof(*ids));
    free(ids);
}

/* The start token: asked for, in the text already, overruled by tokenizer_config.json. */
static void start_token(void **state)
{
    static const char no[] =
        "{\"add_bos_token\": false, \"bos_token\": \"<|endoftext|>\"}";
    static const char yes[] =
        "{\"add_bos_token\": true, \"bos_token\": {\"content\": \"<|im_start|>\"}}";
    struct model m = {.path = (char *)"test", .dir = files_dir};
    json_t *root = read_tokenizer("deepseek-v3");
    char *text = json_dumps(root, 0);
    struct tokenizer *t = parse_json(root);
    int32_t start = tokenizer_find(t, "<|endoftext|>"), a = tokenizer_find(t, "a");

    (void)state;
    expect(t, "a", true, false, (int32_t[]){a}, 1);
    expect(t, "a", true, true, (int32_t[]){start, a}, 2);
    expect(t, "<|endoftext|>a", true, true, (int32_t[]){start, a}, 2);
    tokenizer_close(t);
    files_create();
    files_write("tokenizer.json", text, strlen(text));
    files_write("tokenizer_config.json", no, strlen(no));
    assert_int_equal(tokenizer_open(&t, &m), 0);
    expect(t, "a", true, true, (int32_t[]){a}, 1);
    tokenizer_close(t);
    files_write("tokenizer_config.json", "{}", 2);
    assert_int_equal(tokenizer_open(&t, &m), 0);
    expect(t, "a", true, true, (int32_t[]){start, a}, 2);
    tokenizer_close(t);
    json_object_set_new(root, "post_processor", json_null());
    free(text);
    text = json_dumps(root, 0);
    files_write("tokenizer.json", text, strlen(text));
    files_write("tokenizer_config.json", yes, strlen(yes));
    assert_int_equal(tokenizer_open(&t, &m), 0);
    expect(t, "a", true, true, (int32_t[]){tokenizer_find(t, "<|im_start|>"), a}, 2);
    tokenizer_close(t);
    files_remove();
    json_decref(root);
    free(text);
}

static void gguf_start_token(void **state)
{
    json_t *root = read_tokenizer("qwen2");

    (void)state;
    for (int add = 0; add < 3; add++) {
        struct bytes b = gguf_of_json(root, "qwen2", 1 + (add < 2));
        int err;
        gguf_put_int(&b, "tokenizer.ggml.bos_token_id", 4, 7, 4);
        if (add < 2)
            gguf_put_int(&b, "tokenizer.ggml.add_bos_token", 7, (uint64_t)add, 1);
        struct tokenizer *t = open_gguf_bytes(&b, &err);
        assert_int_equal(err, 0);
        int32_t a = tokenizer_find(t, "a");
        if (add == 1)
            expect(t, "a", true, true, (int32_t[]){7, a}, 2);
        else
            expect(t, "a", true, true, (int32_t[]){a}, 1);
        tokenizer_close(t);
        free(b.data);
    }
    json_decref(root);
}

/* Text that nobody marked as the model's own gives no special tokens; added ones it
 * does. */
static void plain_text(void **state)
{
    static const char text[] = "<|im_start|>user<think>";
    json_t *root = read_tokenizer("qwen2");
    struct tokenizer *t = parse_json(root);
    int32_t *ids, start = tokenizer_find(t, "<|im_start|>");
    size_t n, len;
    char *back;

    (void)state;
    assert_int_equal(tokenizer_encode(t, &ids, &n, text, strlen(text), false, false), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(ids[i], start);
    assert_int_equal(ids[n - 1], tokenizer_find(t, "<think>"));
    assert_int_equal(tokenizer_decode(t, &back, &len, ids, n, false), 0);
    assert_string_equal(back, text);
    free(back);
    free(ids);
    assert_int_equal(tokenizer_encode(t, &ids, &n, text, strlen(text), true, false), 0);
    assert_int_equal(ids[0], start);
    assert_int_equal(tokenizer_decode(t, &back, &len, ids, n, false), 0);
    assert_string_equal(back, "user<think>");
    free(back);
    assert_int_equal(tokenizer_decode(t, &back, &len, ids, n, true), 0);
    assert_string_equal(back, text);
    free(back);
    free(ids);
    tokenizer_close(t);
    json_decref(root);
}

/* Bytes that are no UTF-8 are encoded one by one; decoded, every maximal part is
 * U+FFFD. */
static void invalid_text(void **state)
{
    static const char *const names[] = {"qwen2", "llama"};
    static const struct {
        const char *text, *back;
    } cases[] = {
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe4\xbd", "\xef\xbf\xbd"},
        {"\xe4\xbd z", "\xef\xbf\xbd z"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f\x98\xf0\x9f\x98\x80", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        json_t *root = read_tokenizer(names[k]);
        struct tokenizer *t = parse_json(root);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
            int32_t *ids;
            size_t n, len;
            char *back;
            const char *text = cases[i].text;
            assert_int_equal(
                tokenizer_encode(t, &ids, &n, text, strlen(text), true, true), 0);
            assert_int_equal(tokenizer_decode(t, &back, &len, ids, n, false), 0);
            /* Behind bytes that are none, text begins anew, and with a space. */
            if (strcmp(names[k], "llama"))
                assert_string_equal(back, cases[i].back);
            check_stream(t, ids, n, back);
            free(back);
            free(ids);
        }
        tokenizer_close(t);
        json_decref(root);
    }
}

/* Ids beyond the vocabulary are refused, ids without a token are nothing. */
static void unknown_ids(void **state)
{
    json_t *root = read_tokenizer("smollm");
    json_t *added = json_object_get(root, "added_tokens");
    json_t *last = json_array_get(added, json_array_size(added) - 1);
    json_object_set_new(last, "id", json_integer(500));
    struct tokenizer *t = parse_json(root);
    char *text;
    size_t len;

    (void)state;
    assert_int_equal(tokenizer_size(t), 501);
    assert_int_equal(tokenizer_decode(t, &text, &len, (int32_t[]){499, 500}, 2, true), 0);
    assert_string_equal(text, "<|im_end|>");
    free(text);
    for (int32_t id = -1; id < 502; id += 502) {
        struct capture c = capture_begin();
        int err = tokenizer_decode(t, &text, &len, &id, 1, true);
        char *line = capture_end(c);
        assert_int_equal(err, -EINVAL);
        assert_true(capture_is_one_line(line));
        free(line);
    }
    tokenizer_close(t);
    json_decref(root);
}

/* Long runs: quadratic work would take hours. Runs of marks are the normalizer's worst
 * case. */
static void long_texts(void **state)
{
    static const char *const names[] = {"qwen2", "smollm", "deepseek-v3", "llama",
                                        "tekken"};
    static const char *const units[] = {"a",  " ",  "\n",    "1",   ".",
                                        "'s", "aB", "word ", " \n", "\xcc\x81\xcc\xa3"};
    enum { LENGTH = 200000 };
    static char text[LENGTH + 1];

    (void)state;
    double start = time_now();
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        json_t *root = read_tokenizer(names[k]);
        struct tokenizer *t = parse_json(root);
        for (size_t i = 0; i < ARRAY_LEN(units); i++) {
            size_t n = strlen(units[i]), count;
            int32_t *ids;
            for (size_t at = 0; at < LENGTH; at++)
                text[at] = units[i][at % n];
            assert_int_equal(tokenizer_encode(t, &ids, &count, text, LENGTH, true, false),
                             0);
            assert_true(count > 1);
            free(ids);
        }
        tokenizer_close(t);
        json_decref(root);
    }
    assert_true(time_now() - start < 60);
}

/* A pattern that would search for years ends the call with one line. */
static void endless_pattern(void **state)
{
    static char text[4096];
    json_t *root = read_tokenizer("split0");
    json_t *list =
        json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    json_object_set_new(json_object_get(json_array_get(list, 0), "pattern"), "Regex",
                        json_string("(a+)+$|(a|a|aa)+b"));
    struct tokenizer *t = parse_json(root);
    int32_t *ids;
    size_t n;

    (void)state;
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 2] = 'c';
    struct capture c = capture_begin();
    int err = tokenizer_encode(t, &ids, &n, text, strlen(text), true, false);
    char *line = capture_end(c);
    assert_int_equal(err, -E2BIG);
    assert_true(capture_is_one_line(line));
    free(line);
    tokenizer_close(t);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference),       cmocka_unit_test(libraries),
        cmocka_unit_test(merge_strings),   cmocka_unit_test(gguf_names),
        cmocka_unit_test(gguf_reference),  cmocka_unit_test(sentencepiece),
        cmocka_unit_test(start_token),     cmocka_unit_test(gguf_start_token),
        cmocka_unit_test(plain_text),      cmocka_unit_test(invalid_text),
        cmocka_unit_test(unknown_ids),     cmocka_unit_test(long_texts),
        cmocka_unit_test(endless_pattern),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
