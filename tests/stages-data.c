/* Training data: ids against the tokenizer's own, cuts, order, and files that are
 * refused. */
#include "stages/data.h"
#include "tests/stages-tokenizers.h"

#define VOCABULARY 1003 /* of the largest tokenizer */

/* A tokenizer.json below tests/. */
static struct tokenizer *open_tokenizer(const char *name)
{
    json_t *root = read_json(TEST_DATA(name));
    struct tokenizer *t = parse_json(root);

    json_decref(root);
    assert_true(tokenizer_size(t) <= VOCABULARY);
    return t;
}

/* The data of a text in a format; whatever else is in c. */
static struct data *parse(struct data_config c, const char *path, const char *text)
{
    struct data *d;

    c.path = path;
    c.vocabulary = VOCABULARY;
    assert_int_equal(data_parse(&d, &c, text, strlen(text)), 0);
    return d;
}

static void check_ids(const int32_t *ids, size_t n, const int32_t *want, size_t n_want)
{
    assert_int_equal(n, n_want);
    assert_memory_equal(ids, want, n * sizeof(*ids));
}

/* Sequence i of the order is `want`, a list that ends with -1. */
static void check_sequence(struct data *d, uint64_t i, const int32_t *want)
{
    const int32_t *ids;
    size_t n, n_want = 0;

    while (want[n_want] >= 0)
        n_want++;
    data_get(d, i, &ids, &n);
    check_ids(ids, n, want, n_want);
}

/* A file and its sequences: lists that end with -1, the last of them empty. */
struct sequences {
    const char *path, *text;
    struct data_config c;
    int32_t want[5][8];
};

static const struct sequences cuts[] = {
    /* Every document for itself. */
    {"a.jsonl",
     "{\"ids\": [1, 2, 3], \"text_id\": \"x\", \"score\": 1.5}\n\n \t\r\n"
     "{\"input_ids\": [4, 5]}\r\n{\"ids\": [6]}\n{\"ids\": []}\n{\"ids\": [7, 8]}",
     {.positions = 4},
     {{1, 2, 3, -1}, {4, 5, -1}, {7, 8, -1}, {-1}}},
    {"a.json",
     " [ [1, 2,3] ,\n[4,5],[6],[]\n, [7,8]] \n",
     {.positions = 4},
     {{1, 2, 3, -1}, {4, 5, -1}, {7, 8, -1}, {-1}}},
    {"a.json", "[5, 6, 7]", {.positions = 2}, {{5, 6, 7, -1}, {-1}}},
    /* eos is for packing. */
    {"a.json",
     "[[1, 2], [3, 4]]",
     {.positions = 4, .eos = 9},
     {{1, 2, -1}, {3, 4, -1}, {-1}}},
    /* Windows share a token; what does not fill one is dropped. */
    {"a.json",
     "[[1, 2, 3], [4], [], [5, 6]]",
     {.positions = 2, .pack = true, .eos = -1},
     {{1, 2, 3, -1}, {3, 4, 5, -1}, {-1}}},
    {"a.json",
     "[[1, 2, 3], [4], [], [5, 6]]",
     {.positions = 2, .pack = true, .eos = 9},
     {{1, 2, 3, -1}, {3, 9, 4, -1}, {4, 9, 5, -1}, {5, 6, 9, -1}, {-1}}},
    /* A document that ends with eos gets no second one. */
    {"a.json",
     "[[1, 9], [2, 3]]",
     {.positions = 4, .pack = true, .eos = 9},
     {{1, 9, 2, 3, 9, -1}, {-1}}},
    /* The only window may be short. */
    {"a.json",
     "[[1, 2]]",
     {.positions = 100, .pack = true, .eos = -1},
     {{1, 2, -1}, {-1}}},
    {"a.json", "[[7]]", {.positions = 100, .pack = true, .eos = 0}, {{7, 0, -1}, {-1}}},
};

static void sequences(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
        struct data *d = parse(cuts[i].c, cuts[i].path, cuts[i].text);
        size_t n = 0;
        while (cuts[i].want[n][0] >= 0)
            n++;
        assert_int_equal(data_sequences(d), n);
        assert_int_equal(data_held_out(d), 0);
        for (size_t k = 0; k < 3 * n; k++)
            check_sequence(d, k, cuts[i].want[k % n]);
        data_close(d);
    }
}

/* Documents beyond T + 1 tokens lose their ends, which is said. */
static void cut_documents(void **state)
{
    struct capture c = capture_begin();
    struct data *d = parse((struct data_config){.positions = 2}, "a.json",
                           "[[1, 2, 3, 4, 5], [6, 7, 8], [9, 10, 11, 12]]");
    char *said = capture_end(c);

    (void)state;
    assert_non_null(strstr(said, "documents cut at 3 tokens: 2 of 3\n"));
    free(said);
    assert_int_equal(data_sequences(d), 3);
    assert_int_equal(data_tokens(d), 9);
    check_sequence(d, 0, (const int32_t[]){1, 2, 3, -1});
    check_sequence(d, 1, (const int32_t[]){6, 7, 8, -1});
    check_sequence(d, 2, (const int32_t[]){9, 10, 11, -1});
    data_close(d);
}

/* Paragraphs and lines, as they must be found in the formats of text. */
static const char *const paragraphs[] = {"Once upon a time\nthere was <|im_end|> a pipe.",
                                         "  caf\xc3\xa9 \xff 12345", "it's\r", "The end"};
static const char plain[] = "\n \n"
                            "Once upon a time\nthere was <|im_end|> a pipe.\n\n\n"
                            "  caf\xc3\xa9 \xff 12345\n\t \r\nit's\r\n\r\nThe end";

static void check_text(const struct tokenizer *t, struct data *d, size_t i,
                       const char *text, size_t len)
{
    const int32_t *ids;
    int32_t *want;
    size_t n, n_want;

    assert_int_equal(tokenizer_encode(t, &want, &n_want, text, len, false, true), 0);
    data_get(d, i, &ids, &n);
    check_ids(ids, n, want, n_want);
    free(want);
}

static void texts(void **state)
{
    static const char *const names[] = {"reference/tok-gpt2/tokenizer.json",
                                        "reference/tok-llama3/tokenizer.json",
                                        "data/tokenizers/llama.json"};
    static const char lines[] = "{\"text\": \"caf\\u00e9\\u0000 |\"}\n{\"text\": \"\"}\n"
                                "{\"ids\": [3, 4]}\n{\"text\": \"\\n\\nThe end\"}\n";

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct tokenizer *t = open_tokenizer(names[i]);
        struct data_config c = {
            .tokenizer = t, .eos = -1, .bos = true, .positions = 1000};
        struct data *d = parse(c, "a.txt", plain);
        assert_int_equal(data_sequences(d), ARRAY_LEN(paragraphs));
        for (size_t k = 0; k < ARRAY_LEN(paragraphs); k++)
            check_text(t, d, k, paragraphs[k], strlen(paragraphs[k]));
        data_close(d);
        d = parse(c, "a.jsonl", lines);
        assert_int_equal(data_sequences(d), 3);
        check_text(t, d, 0, "caf\xc3\xa9\0 |", 8);
        check_sequence(d, 1, (const int32_t[]){3, 4, -1});
        check_text(t, d, 2, "\n\nThe end", 9);
        data_close(d);
        c.pack = true;
        d = parse(c, "a", plain);
        assert_int_equal(data_sequences(d), 1);
        check_text(t, d, 0, plain, strlen(plain));
        data_close(d);
        tokenizer_close(t);
    }
}

/* bos begins every text of a packed stream, not only the stream; eos ends it. */
static void packed_texts(void **state)
{
    struct tokenizer *t = open_tokenizer("data/tokenizers/llama.json");
    struct data_config c = {
        .tokenizer = t, .eos = 7, .bos = true, .positions = 1000, .pack = true};
    struct data *d =
        parse(c, "a.jsonl", "{\"text\": \"one two\"}\n{\"text\": \"three\"}");
    const int32_t *ids;
    int32_t *first, *second;
    size_t n, n_first, n_second;

    (void)state;
    assert_int_equal(tokenizer_encode(t, &first, &n_first, "one two", 7, false, true), 0);
    assert_int_equal(tokenizer_encode(t, &second, &n_second, "three", 5, false, true), 0);
    data_get(d, 0, &ids, &n);
    assert_int_equal(n, n_first + n_second + 2);
    check_ids(ids, n_first, first, n_first);
    assert_int_equal(ids[n_first], 7);
    check_ids(ids + n_first + 1, n_second, second, n_second);
    assert_int_equal(ids[n_first + 1], tokenizer_find(t, "<s>"));
    assert_int_equal(ids[n - 1], 7);
    free(first);
    free(second);
    data_close(d);
    tokenizer_close(t);
}

/* `n` documents [i, i + 1]. */
static char *numbered(size_t n)
{
    char *text = malloc(32 * n + 8);
    size_t len = 1;

    strcpy(text, "[");
    for (size_t i = 0; i < n; i++)
        len += (size_t)sprintf(text + len, "%s[%zu, %zu]", i ? ", " : "", i, i + 1);
    strcpy(text + len, "]");
    return text;
}

enum { MANY = 100, EPOCHS = 6 };

static struct data *parse_many(bool shuffle, uint64_t seed, double held_out)
{
    char *text = numbered(MANY);
    struct data *d = parse(
        (struct data_config){
            .positions = 1, .shuffle = shuffle, .seed = seed, .held_out = held_out},
        "a.json", text);
    free(text);
    return d;
}

static int first_id(struct data *d, uint64_t i)
{
    const int32_t *ids;
    size_t n;

    data_get(d, i, &ids, &n);
    assert_int_equal(n, 2);
    assert_int_equal(ids[1], ids[0] + 1);
    return ids[0];
}

static void walk(struct data *d, int *first)
{
    for (size_t i = 0; i < EPOCHS * MANY; i++)
        first[i] = first_id(d, i);
}

static void shuffle(void **state)
{
    int order[EPOCHS * MANY], other[EPOCHS * MANY], again[EPOCHS * MANY];
    struct data *a = parse_many(true, 1, 0), *b = parse_many(true, 2, 0),
                *c = parse_many(true, 1, 0);

    (void)state;
    walk(a, order);
    walk(b, other);
    walk(c, again);
    assert_memory_equal(order, again, sizeof(order));
    for (int e = 0; e < EPOCHS; e++) {
        bool seen[MANY] = {false};
        for (int i = 0; i < MANY; i++)
            seen[order[e * MANY + i]] = true;
        for (int i = 0; i < MANY; i++)
            assert_true(seen[i]);
        for (int k = 0; k < EPOCHS; k++) {
            size_t bytes = MANY * sizeof(*order);
            assert_int_not_equal(memcmp(order + e * MANY, other + k * MANY, bytes), 0);
            if (k != e)
                assert_int_not_equal(memcmp(order + e * MANY, order + k * MANY, bytes),
                                     0);
        }
    }
    data_close(a);
    data_close(b);
    data_close(c);
}

/* Any index by itself is what walking there gives, in whatever order they are asked. */
static void any_index(void **state)
{
    int order[EPOCHS * MANY];
    struct data *d = parse_many(true, 5, 0), *fresh;

    (void)state;
    walk(d, order);
    for (size_t i = 0; i < EPOCHS * MANY; i++) {
        size_t at = i * 337 % (EPOCHS * MANY);
        assert_int_equal(first_id(d, at), order[at]);
    }
    for (size_t at = 0; at < EPOCHS * MANY; at += 61) {
        fresh = parse_many(true, 5, 0);
        assert_int_equal(first_id(fresh, at), order[at]);
        data_close(fresh);
    }
    first_id(d, UINT64_MAX);
    data_close(d);
}

/* Where a document comes first, over many epochs: about equally often in every place. */
static void uniform(void **state)
{
    enum { DOCUMENTS = 5, ROUNDS = 5000 };
    char *text = numbered(DOCUMENTS);
    struct data *d =
        parse((struct data_config){.positions = 1, .shuffle = true}, "a.json", text);
    int count[DOCUMENTS][DOCUMENTS] = {{0}};

    (void)state;
    for (uint64_t i = 0; i < (uint64_t)ROUNDS * DOCUMENTS; i++)
        count[first_id(d, i)][i % DOCUMENTS]++;
    for (int k = 0; k < DOCUMENTS * DOCUMENTS; k++) {
        /* 1000 expected, standard deviation 28. */
        int n = count[k / DOCUMENTS][k % DOCUMENTS];
        assert_in_range(n, 850, 1150);
    }
    data_close(d);
    free(text);
}

static void held_out(void **state)
{
    static const struct {
        double share;
        size_t want;
    } shares[] = {{0, 0}, {1e-9, 1}, {0.1, 10}, {0.5, 50}, {0.999, 99}};
    const int32_t *ids;
    size_t n;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        struct data *d = parse_many(true, 3, shares[i].share);
        size_t train = data_sequences(d), held = data_held_out(d);
        assert_int_equal(held, shares[i].want);
        assert_int_equal(train, MANY - held);
        for (size_t k = 0; k < 3 * train; k++)
            assert_in_range(first_id(d, k), 0, train - 1);
        for (size_t k = 0; k < held; k++) {
            data_get_held_out(d, k, &ids, &n);
            assert_int_equal(n, 2);
            assert_int_equal(ids[0], train + k);
        }
        data_close(d);
    }
}

/* Packed, no target of the held-out part is one of training. */
static void held_out_windows(void **state)
{
    struct data *d = parse(
        (struct data_config){.positions = 2, .pack = true, .eos = -1, .held_out = 0.4},
        "a.json", "[1, 2, 3, 4, 5, 6, 7, 8]");
    const int32_t *ids;
    size_t n;

    (void)state;
    assert_int_equal(data_sequences(d), 2);
    assert_int_equal(data_held_out(d), 1);
    check_sequence(d, 1, (const int32_t[]){3, 4, 5, -1});
    data_get_held_out(d, 0, &ids, &n);
    check_ids(ids, n, (const int32_t[]){5, 6, 7}, 3);
    data_close(d);
}

static uint64_t fingerprint(struct data_config c, const char *text)
{
    struct data *d = parse(c, "a.json", text);
    uint64_t h = data_fingerprint(d);
    data_close(d);
    return h;
}

static void fingerprints(void **state)
{
    static const char text[] = "[[1, 2, 3], [4, 5, 6], [7, 8, 9]]";
    const struct data_config c = {.positions = 2, .shuffle = true, .seed = 1};
    struct data_config other[] = {c, c, c, c, c, c, c};
    uint64_t h[ARRAY_LEN(other) + 3];
    size_t n = 0;

    (void)state;
    other[1].seed = 2;
    other[2].shuffle = false;
    other[3].held_out = 0.3;
    other[4].pack = true, other[4].eos = -1;
    other[5].pack = true, other[5].eos = 11;
    other[6].pack = true, other[6].eos = -1, other[6].positions = 3;
    for (; n < ARRAY_LEN(other); n++)
        h[n] = fingerprint(other[n], text);
    h[n++] = fingerprint(c, "[[1, 2, 3], [4, 5, 6], [7, 8, 10]]");
    h[n++] = fingerprint(c, "[[4, 5, 6], [1, 2, 3], [7, 8, 9]]");
    h[n++] = fingerprint(c, "[[1, 2, 3], [4, 5], [6, 7, 8]]");
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(h[i] != h[k]);
    /* What changes nothing in the sequences is not in it. */
    other[0].positions = 3;
    assert_true(fingerprint(other[0], text) == h[0]);
    assert_true(fingerprint(c, " [[1,2,3],[],[4, 5, 6], [7, 8, 9]]") == h[0]);
    other[2].seed = 9;
    assert_true(fingerprint(other[2], text) == h[2]);
}

struct bad {
    const char *path, *text, *says;
};

static const struct bad bads[] = {
    {"a.jsonl", "\n{\"ids\": [1, 2]}\n{\"ids\": [1, 2}",
     "a.jsonl, line 3: not valid JSON"},
    {"a.jsonl", "{\"ids\": [1, 2]} x", "a.jsonl, line 1: not valid JSON"},
    {"a.jsonl", "{\"ids\": [1, 2], \"ids\": [1, 2]}",
     "line 1: not valid JSON: duplicate"},
    {"a.jsonl", "{\"text\": \"\xff\"}", "line 1: not valid JSON"},
    {"a.jsonl", "{\"text\": \"\\ud800\"}", "line 1: not valid JSON"},
    {"a.jsonl", "{\"ids\": [1, 2],\n\"x\": 1}", "line 1: not valid JSON"},
    {"a.jsonl", "[1, 2]", "line 1: expected one of"},
    {"a.jsonl", "{}", "line 1: expected one of"},
    {"a.jsonl", "{\"content\": \"x\"}", "line 1: expected one of"},
    {"a.jsonl", "{\"text\": [1, 2]}", "line 1: expected one of"},
    {"a.jsonl", "{\"text\": null}", "line 1: expected one of"},
    {"a.jsonl", "{\"ids\": \"1 2\"}", "line 1: expected one of"},
    {"a.jsonl", "{\"ids\": [1, 2], \"text\": \"x\"}", "line 1: expected one of"},
    {"a.jsonl", "{\"ids\": [1], \"input_ids\": [1]}", "line 1: expected one of"},
    {"a.jsonl", "{\"ids\": [1, 2.0]}", "line 1: item 1 is not a token id"},
    {"a.jsonl", "{\"ids\": [1, 1e2]}", "line 1: item 1 is not a token id"},
    {"a.jsonl", "{\"ids\": [1, -2]}", "line 1: item 1 is not a token id"},
    {"a.jsonl", "{\"ids\": [1, true]}", "line 1: item 1 is not a token id"},
    {"a.jsonl", "{\"ids\": [1, \"2\"]}", "line 1: item 1 is not a token id"},
    {"a.jsonl", "{\"ids\": [[1, 2]]}", "line 1: item 0 is not a token id"},
    {"a.jsonl", "{\"ids\": [1, 4294967297]}", "line 1: item 1 is not a token id"},
    {"a.jsonl", "{\"ids\": [1, 99999999999999999999]}", "line 1: not valid JSON"},
    {"a.jsonl", "{\"ids\": [1, 2]}\n{\"ids\": [1, 1003]}",
     "line 2: token 1: id 1003 is not in the vocabulary of 1003"},
    {"a.jsonl", "{\"text\": \"x\"}", "line 1: text needs a tokenizer"},
    {"a.txt", "\n\nx\ny", "a.txt, line 3: text needs a tokenizer"},
    {"a.jsonl", "{\"ids\": [1]}\n{\"ids\": []}\n", "a.jsonl: no sequence of two tokens"},
    {"a.jsonl", "\n \n", "a.jsonl: no sequence of two tokens"},
    {"a.jsonl", "", "a.jsonl: no sequence of two tokens"},
    {"a.txt", "\n \n", "a.txt: no sequence of two tokens"},
    {"a.json", "[]", "a.json: no sequence of two tokens"},
    {"a.json", "[[1]]", "a.json: no sequence of two tokens"},
    {"a.json", "", "a.json: expected a list of lists of token ids at byte 0"},
    {"a.json", " {\"ids\": [1, 2]}", "expected a list of lists of token ids at byte 1"},
    {"a.json", "[[1, 2]", "a.json: expected a comma or ] at byte 7"},
    {"a.json", "[[1, 2] [3]]", "a.json: expected a comma or ] at byte 8"},
    {"a.json", "[[1, 2],]", "a.json: expected a list of token ids at byte 8"},
    {"a.json", "[[1, 2], 3]", "a.json: expected a list of token ids at byte 9"},
    {"a.json", "[[1, 2]] 3", "a.json: expected the end of the file at byte 9"},
    {"a.json", "[1, 2]]", "a.json: expected the end of the file at byte 6"},
    {"a.json", "[[1, 2], [3, 4.5]]", "a.json, list 1: item 1 is not a token id"},
    {"a.json", "[1, [2]]", "a.json: item 1 is not a token id"},
    {"a.json", "[[1, 2], [3, x]]", "a.json, list 1: not valid JSON"},
    {"a.json", "[[1, 1003]]", "a.json, list 0: token 1: id 1003 is not in"},
    {"a.json", "[[1, 2], [1, 2", "a.json, list 1: not valid JSON"},
};

static void check_refused(struct data_config c, const char *text, int want,
                          const char *says)
{
    struct capture capture = capture_begin();
    struct data *d;

    c.vocabulary = VOCABULARY;
    int err = text ? data_parse(&d, &c, text, strlen(text)) : data_open(&d, &c);
    char *said = capture_end(capture);
    if (err != want || d || !capture_is_one_line(said) || !strstr(said, says))
        fail_msg("%s: error %d, but %d with \"%s\" was expected: %s",
                 text ? text : c.path, err, want, says, said);
    free(said);
}

static void bad_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bads); i++)
        check_refused((struct data_config){.path = bads[i].path, .positions = 4},
                      bads[i].text, -EINVAL, bads[i].says);
}

static void bad_configs(void **state)
{
    static const char two[] = "[[1, 2], [3, 4]]";

    (void)state;
    check_refused((struct data_config){.path = "a.json"}, two, -EINVAL,
                  "a.json: sequences of one token");
    check_refused((struct data_config){.path = "a.json", .positions = 1, .held_out = 1},
                  two, -EINVAL, "held-out share");
    check_refused(
        (struct data_config){.path = "a.json", .positions = 1, .held_out = -0.1}, two,
        -EINVAL, "held-out share");
    check_refused(
        (struct data_config){.path = "a.json", .positions = 1, .held_out = 0.0 / 0.0},
        two, -EINVAL, "held-out share");
    check_refused((struct data_config){.path = "a.json", .positions = 4, .held_out = 0.1},
                  "[[1, 2]]", -EINVAL, "1 sequence cannot be divided");
    check_refused(
        (struct data_config){.path = "a.json", .positions = 1, .pack = true, .eos = 1003},
        two, -EINVAL, "is not in the vocabulary");
    check_refused(
        (struct data_config){.path = "a.json", .positions = 9, .pack = true, .eos = -1},
        "[[1]]", -EINVAL, "no sequence of two tokens");
}

/* Ids of the tokenizer that the model has no rows for. */
static void foreign_tokenizer(void **state)
{
    struct tokenizer *t = open_tokenizer("reference/tok-gpt2/tokenizer.json");
    struct data_config c = {
        .path = "a.txt", .tokenizer = t, .vocabulary = 3, .positions = 4};
    struct capture capture = capture_begin();
    struct data *d;

    (void)state;
    assert_int_equal(data_parse(&d, &c, "hello", 5), -EINVAL);
    char *said = capture_end(capture);
    assert_true(capture_is_one_line(said));
    assert_non_null(strstr(said, "a.txt, line 1: token 0"));
    free(said);
    tokenizer_close(t);
}

static void count(void *user, const char *what, double done)
{
    double *last = user;
    assert_non_null(what);
    assert_true(done >= *last && done <= 1);
    *last = done;
}

static void files(void **state)
{
    struct data_config c = {.positions = 2, .vocabulary = VOCABULARY, .progress = count};
    static const char text[] = "{\"ids\": [1, 2, 3]}\n";
    double done = 0;
    struct data *d;

    (void)state;
    c.user = &done;
    files_create();
    files_write("a.jsonl", text, strlen(text));
    c.path = files_path("a.jsonl");
    assert_int_equal(data_open(&d, &c), 0);
    assert_true(done == 1);
    check_sequence(d, 0, (const int32_t[]){1, 2, 3, -1});
    data_close(d);
    data_close(NULL);
    files_write("empty.jsonl", "", 0);
    c.path = files_path("empty.jsonl");
    check_refused(c, NULL, -EINVAL, "empty.jsonl: the file is empty");
    c.path = files_path("none.jsonl");
    check_refused(c, NULL, -ENOENT, "none.jsonl: No such file");
    c.path = files_dir;
    check_refused(c, NULL, -EISDIR, "not a regular file");
    assert_int_equal(mkfifo(files_path("fifo.txt"), 0600), 0);
    c.path = files_path("fifo.txt");
    check_refused(c, NULL, -EINVAL, "not a regular file");
    if (geteuid()) {
        files_write("secret.txt", "x", 1);
        assert_int_equal(chmod(files_path("secret.txt"), 0), 0);
        c.path = files_path("secret.txt");
        check_refused(c, NULL, -EACCES, "secret.txt: Permission denied");
    }
    files_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences),
        cmocka_unit_test(cut_documents),
        cmocka_unit_test(texts),
        cmocka_unit_test(packed_texts),
        cmocka_unit_test(shuffle),
        cmocka_unit_test(any_index),
        cmocka_unit_test(uniform),
        cmocka_unit_test(held_out),
        cmocka_unit_test(held_out_windows),
        cmocka_unit_test(fingerprints),
        cmocka_unit_test(bad_texts),
        cmocka_unit_test(bad_configs),
        cmocka_unit_test(foreign_tokenizer),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
