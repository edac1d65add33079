/* SmolLM2-135M-Instruct from its GGUF file, named by PENSTOCK_SMOLLM2, against what transformers computes
 * from the same file (golden/smollm2.py): ids of prompts, greedy tokens, their text, the perplexity of a
 * text. PENSTOCK_TEST_DEVICES (lists of lanes, separated by spaces) moves it to other lanes. */
#include <jansson.h>
#include <math.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "runtime/penstock.h"
#include "tests/test.h"

#define MAX_PROMPTS 8
#define MAX_LISTS   8
/* New tokens where arithmetic is slow. */
#define FEW_TOKENS  4

struct golden {
    json_t *root;
    json_t *prompts, *score;
    int n; /* prompts */
};

static struct golden golden;
static const char *model;
static const char *lists[MAX_LISTS + 1]; /* of lanes, terminated by NULL */

static const char *string_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    assert_non_null(s);
    return s;
}

/* The ids of a JSON list, freed by the caller. */
static int32_t *ids_of(const json_t *o, const char *key, size_t *n)
{
    const json_t *list = json_object_get(o, key);
    *n = json_array_size(list);
    assert_true(*n > 0);
    int32_t *ids = calloc(*n, sizeof(*ids));
    assert_non_null(ids);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return ids;
}

static char *read_text(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    size_t most = 1 << 20;
    char *text = malloc(most);
    assert_non_null(f);
    assert_non_null(text);
    *len = fread(text, 1, most, f);
    fclose(f);
    return text;
}

static int open_golden(void **state)
{
    (void)state;
    golden.root = json_load_file(TEST_DATA("data/smollm2.json"), 0, NULL);
    golden.prompts = json_object_get(golden.root, "prompts");
    golden.score = json_object_get(golden.root, "score");
    golden.n = (int)json_array_size(golden.prompts);
    return golden.score && golden.n > 0 && golden.n <= MAX_PROMPTS ? 0 : -1;
}

static int close_golden(void **state)
{
    (void)state;
    json_decref(golden.root);
    return 0;
}

static void find_lists(void)
{
    static char copy[512];
    const char *asked = getenv("PENSTOCK_TEST_DEVICES");
    cpu_set_t set;
    int n = 0;

    sched_getaffinity(0, sizeof(set), &set);
    if (!asked)
        asked = !CPU_ISSET(0, &set) || !CPU_ISSET(1, &set) ? "auto"
                : TEST_SANITIZED                           ? "cpu:0,cpu:1"
                                                           : "cpu:0-1 cpu:0,cpu:1";
    snprintf(copy, sizeof(copy), "%s", asked);
    for (char *word = strtok(copy, " "); word && n < MAX_LISTS; word = strtok(NULL, " "))
        lists[n++] = word;
}

static void assert_ids(const char *what, const int32_t *got, size_t n,
                       const int32_t *want, size_t n_want)
{
    size_t i = 0;
    while (i < n && i < n_want && got[i] == want[i])
        i++;
    if (i < n || i < n_want)
        fail_msg("%s: %zu ids, %zu expected; id %zu is %d, %d expected", what, n, n_want,
                 i, i < n ? got[i] : -1, i < n_want ? want[i] : -1);
}

static void check_encoding(struct penstock_text *t, const json_t *p)
{
    const char *name = string_of(p, "name"), *text = string_of(p, "prompt");
    bool chat = json_is_true(json_object_get(p, "chat"));
    char *form = NULL, *back;
    int32_t *got, *want;
    size_t n, n_want, len;

    if (chat) {
        assert_int_equal(penstock_chat(t, &form, NULL, text), 0);
        assert_string_equal(form, string_of(p, "form"));
        text = form;
    }
    want = ids_of(p, "ids", &n_want);
    assert_int_equal(penstock_encode(t, &got, &n, text, strlen(text), chat, true), 0);
    assert_ids(name, got, n, want, n_want);
    assert_int_equal(penstock_decode(t, &back, &len, got, n, true), 0);
    assert_string_equal(back, text);
    free(back);
    free(got);
    free(want);
    free(form);
}

static void prompts_have_the_right_ids(void **state)
{
    struct penstock_text *t;
    size_t n, n_want, len;
    int32_t *got, *want = ids_of(golden.score, "ids", &n_want);
    char *text = read_text(TEST_DATA("data/smollm2-text.txt"), &len);

    (void)state;
    assert_int_equal(penstock_text_open(&t, model), 0);
    for (int i = 0; i < golden.n; i++)
        check_encoding(t, json_array_get(golden.prompts, i));
    assert_int_equal(penstock_encode(t, &got, &n, text, len, false, true), 0);
    assert_ids("text", got, n, want, n_want);
    penstock_text_close(t);
    free(text);
    free(got);
    free(want);
}

/* The stream of an answer, token by token, is the text too. */
static void check_stream(const struct penstock_text *t, const int32_t *ids, size_t n,
                         const char *want)
{
    struct penstock_stream *s;
    const char *piece;
    size_t len, at = 0, total = strlen(want);

    assert_int_equal(penstock_stream_open(&s, t), 0);
    for (size_t i = 0; i <= n; i++) {
        assert_int_equal(i < n ? penstock_stream_next(s, ids[i], &piece, &len)
                               : penstock_stream_flush(s, &piece, &len),
                         0);
        assert_true(len <= total - at);
        assert_memory_equal(piece, want + at, len);
        at += len;
    }
    assert_int_equal(at, total);
    penstock_stream_close(s);
}

static void answers_have_the_right_text(void **state)
{
    struct penstock_text *t;
    (void)state;
    assert_int_equal(penstock_text_open(&t, model), 0);
    for (int i = 0; i < golden.n; i++) {
        const json_t *p = json_array_get(golden.prompts, i);
        size_t n, len;
        int32_t *ids = ids_of(p, "tokens", &n);
        char *text;
        assert_int_equal(penstock_decode(t, &text, &len, ids, n, false), 0);
        assert_string_equal(text, string_of(p, "text"));
        check_stream(t, ids, n, text);
        free(text);
        free(ids);
    }
    penstock_text_close(t);
}

static void compare_tokens(const json_t *p, const struct penstock_sequence *got,
                           const char *devices)
{
    size_t n, i = 0;
    int32_t *want = ids_of(p, "tokens", &n);
    n = TEST_SANITIZED ? FEW_TOKENS : n;
    assert_int_equal(got->n, n);
    while (i < n && got->tokens[i] == want[i])
        i++;
    if (i < n)
        fail_msg("%s on %s: token %zu is %d, %d expected, which was ahead by %g",
                 string_of(p, "name"), devices, i, got->tokens[i], want[i],
                 json_real_value(json_array_get(json_object_get(p, "gap"), i)));
    free(want);
}

static void greedy_tokens_equal_transformers(void **state)
{
    struct penstock_prompt prompts[MAX_PROMPTS];
    struct penstock_generate work = {.prompts = prompts,
                                     .n_prompts = golden.n,
                                     .ignore_eos = true,
                                     .sampling = {.top_p = 1, .repeat_penalty = 1}};
    (void)state;
    for (int i = 0; i < golden.n; i++) {
        const json_t *p = json_array_get(golden.prompts, i);
        prompts[i].ids = ids_of(p, "ids", &prompts[i].n);
        work.n_predict = TEST_SANITIZED
                             ? FEW_TOKENS
                             : (int)json_array_size(json_object_get(p, "tokens"));
    }
    for (const char **d = lists; *d; d++) {
        struct penstock_options o = {.model = model, .devices = *d, .dtype = "fp32"};
        struct penstock_report r;
        assert_int_equal(penstock_generate(&r, &o, &work), 0);
        assert_int_equal(r.n_sequences, golden.n);
        for (int i = 0; i < golden.n; i++)
            compare_tokens(json_array_get(golden.prompts, i), &r.sequences[i], *d);
        penstock_report_free(&r);
    }
    for (int i = 0; i < golden.n; i++)
        free((void *)prompts[i].ids);
}

static void perplexity_equals_transformers(void **state)
{
    double mean = json_number_value(json_object_get(golden.score, "mean_logprob"));
    double perplexity = json_number_value(json_object_get(golden.score, "perplexity"));
    struct penstock_prompt text;

    (void)state;
    if (TEST_SANITIZED)
        skip();
    text.ids = ids_of(golden.score, "ids", &text.n);
    for (const char **d = lists; *d; d++) {
        struct penstock_options o = {.model = model, .devices = *d, .dtype = "fp32"};
        struct penstock_score_report r;
        assert_int_equal(penstock_score(&r, &o, &(struct penstock_score){&text, 1, NULL}),
                         0);
        if (getenv("PENSTOCK_TEST_VERBOSE"))
            fprintf(stderr, "%s: mean log-likelihood %.8f, transformers %.8f\n", *d,
                    r.mean_logprob, mean);
        assert_int_equal(r.positions, text.n - 1);
        if (!(fabs(r.perplexity - perplexity) <= 1e-3 * perplexity))
            fail_msg("%s: perplexity %g, %g expected", *d, r.perplexity, perplexity);
        penstock_score_report_free(&r);
    }
    free((void *)text.ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_have_the_right_ids),
        cmocka_unit_test(answers_have_the_right_text),
        cmocka_unit_test(greedy_tokens_equal_transformers),
        cmocka_unit_test(perplexity_equals_transformers),
    };
    model = getenv("PENSTOCK_SMOLLM2");
    if (!model || access(model, R_OK)) {
        fprintf(stderr, "PENSTOCK_SMOLLM2 names no file that can be read: skipped\n");
        return TEST_SKIPPED;
    }
    find_lists();
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
