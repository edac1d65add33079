/* Malformed and unsupported tokenizers: each is refused with the right error and exactly
 * one line that names the fault. A valid one is spoilt in one place at a time. */
#include "tests/stages-tokenizers.h"

/* What to put at a path of tokenizer.json, between dots, as JSON; NULL: nothing. */
struct spoil {
    const char *path, *value;
    int want;
    const char *says;
};

#define SPLIT(regex, behavior)                                                           \
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" regex                            \
    "\"}, \"behavior\": \"" behavior "\"}"
#define REGEX(regex) SPLIT(regex, "Isolated")
#define FIRST        "pre_tokenizer.pretokenizers.0"
#define TEMPLATE(single, special)                                                        \
    "{\"type\": \"TemplateProcessing\", \"single\": " single                             \
    ", \"special_tokens\": " special "}"

static const struct spoil spoils[] = {
    {"model", NULL, -EINVAL, "no \"model\""},
    {"model", "[]", -EINVAL, "no \"model\""},
    {"model.type", "\"Unigram\"", -ENOTSUP, "\"Unigram\" is not supported"},
    {"model.type", "\"WordPiece\"", -ENOTSUP, "\"WordPiece\" is not supported"},
    {"model.type", "7", -EINVAL, "\"type\" is not a string"},
    {"model.vocab", NULL, -EINVAL, "\"vocab\""},
    {"model.vocab", "[\"a\"]", -EINVAL, "\"vocab\""},
    {"model.vocab.a", "\"1\"", -EINVAL, "token \"a\""},
    {"model.vocab.a", "-1", -EINVAL, "token \"a\""},
    {"model.vocab.a", "1.5", -EINVAL, "token \"a\""},
    {"model.vocab.a", "1e3", -EINVAL, "token \"a\""},
    {"model.vocab.a", "16777216", -EINVAL, "token \"a\""},
    {"model.vocab.a", "99999999999999", -EINVAL, "token \"a\""},
    {"model.vocab.a", "16000000", -EINVAL, "ids up to 16000000"},
    {"model.vocab.a", "66", -EINVAL, "another token has its id"},
    {"model.vocab.a", NULL, -EINVAL, "\"a\" is not in the vocabulary"},
    {"model.vocab.<|im_end|>", "7", -EINVAL, "its id as an added token is another one"},
    {"model.merges", NULL, -EINVAL, "\"merges\""},
    {"model.merges", "{}", -EINVAL, "\"merges\""},
    {"model.merges.0", "\"ab\"", -EINVAL, "merge 0 is no pair"},
    {"model.merges.0", "7", -EINVAL, "merge 0 is no pair"},
    {"model.merges.0", "[\"a\"]", -EINVAL, "merge 0 is no pair"},
    {"model.merges.0", "[\"a\", 7]", -EINVAL, "merge 0 is no pair"},
    {"model.merges.0", "[\"a\", \"zz\"]", -EINVAL, "\"zz\" is not in the vocabulary"},
    {"model.merges.1", "\"z q\"", -EINVAL, "merge 1 makes a token"},
    {"model.dropout", "0.1", -ENOTSUP, "\"dropout\""},
    {"model.dropout", "\"no\"", -EINVAL, "\"dropout\""},
    {"model.continuing_subword_prefix", "\"##\"", -ENOTSUP, "continuing_subword_prefix"},
    {"model.end_of_word_suffix", "\"</w>\"", -ENOTSUP, "end_of_word_suffix"},
    {"model.unk_token", "\"<none>\"", -EINVAL, "\"<none>\": the unknown token"},
    {"model.ignore_merges", "1", -EINVAL, "\"ignore_merges\""},
    {"added_tokens", "{}", -EINVAL, "\"added_tokens\""},
    {"added_tokens.0", "\"x\"", -EINVAL, "no \"content\""},
    {"added_tokens.0.content", "7", -EINVAL, "no \"content\""},
    {"added_tokens.0.id", "null", -EINVAL, "its id is not a number"},
    {"added_tokens.0.id", "3", -EINVAL, "a token of the vocabulary has its id"},
    {"added_tokens.0.special", "\"yes\"", -EINVAL, "\"special\""},
    {"added_tokens.1.content", "\"<|endoftext|>\"", -EINVAL, "is there twice"},
    {"added_tokens.1.id", "420", -EINVAL, "another added token has its id"},
    {"normalizer", "\"NFC\"", -EINVAL, "normalizer: no \"type\""},
    {"normalizer", "{\"type\": \"BertNormalizer\"}", -ENOTSUP,
     "normalizer \"BertNormalizer\""},
    {"normalizer", "{\"type\": \"Sequence\"}", -EINVAL, "normalizers: not a list"},
    {"normalizer", "{\"type\": \"Prepend\"}", -EINVAL, "no \"prepend\""},
    {"normalizer", "{\"type\": \"Replace\", \"content\": \"\"}", -EINVAL,
     "neither a \"String\""},
    {"pre_tokenizer", "{\"type\": \"BertPreTokenizer\"}", -ENOTSUP,
     "\"BertPreTokenizer\""},
    {FIRST, "{\"type\": \"Punctuation\"}", -ENOTSUP, "pre-tokenizer \"Punctuation\""},
    {FIRST, "{\"type\": \"ByteLevel\"}", -EINVAL, "ByteLevel is not the last one"},
    {FIRST, SPLIT("a", "Sideways"), -ENOTSUP, "\"Sideways\""},
    {FIRST, "{\"type\": \"Split\", \"behavior\": \"Isolated\"}", -EINVAL, "pattern"},
    {FIRST, REGEX("(a"), -EINVAL, "pattern \"(a\""},
    {FIRST, REGEX("[z-a]"), -EINVAL, "pattern \"[z-a]\""},
    {FIRST, REGEX("\\\\p{Klingon}"), -EINVAL, "pattern \"\\p{Klingon}\""},
    {FIRST, REGEX("[a-z&&[^b]]"), -ENOTSUP, "an intersection of classes"},
    {FIRST, REGEX("[a[b]]"), -ENOTSUP, "a class in a class"},
    {FIRST, REGEX("[[:alpha:]]"), -ENOTSUP, "a POSIX class"},
    {FIRST, REGEX("a{2,3}+"), -ENOTSUP, "a repeated interval"},
    {FIRST, REGEX("(*LIMIT_MATCH=1)a"), -ENOTSUP, "a verb"},
    {FIRST, REGEX("(?m:.)"), -ENOTSUP, "an option"},
    {FIRST, REGEX("(?:a{65535}){65535}"), -EINVAL, "too large"},
    {"decoder", NULL, -EINVAL, "decoder"},
    {"decoder", "{\"type\": \"WordPiece\"}", -ENOTSUP, "decoder \"WordPiece\""},
    {"decoder", "{\"type\": \"ByteFallback\"}", -EINVAL, "the model is byte-level"},
    {"post_processor", "{\"type\": \"BertProcessing\"}", -ENOTSUP, "\"BertProcessing\""},
    {"post_processor", "{\"type\": \"TemplateProcessing\"}", -EINVAL,
     "no list \"single\""},
    {"post_processor", TEMPLATE("[{\"SpecialToken\": {\"id\": \"<s>\"}}]", "{}"), -EINVAL,
     "a special token has no ids"},
    {"post_processor",
     TEMPLATE("[{\"SpecialToken\": {\"id\": \"x\"}}]", "{\"x\": {\"ids\": [9999]}}"),
     -EINVAL, "a special token is not in the vocabulary"},
};

/* Sets or removes what is at a path. */
static void spoil(json_t *root, const char *path, const char *value)
{
    char copy[128], *rest = copy, *key;
    json_t *at = root;

    snprintf(copy, sizeof(copy), "%s", path);
    while ((key = strsep(&rest, "."))) {
        json_t *new = rest    ? NULL
                      : value ? json_loads(value, JSON_DECODE_ANY, NULL)
                              : NULL;
        if (!rest && value)
            assert_non_null(new);
        if (!rest && json_is_array(at))
            json_array_set_new(at, strtoul(key, NULL, 10), new);
        else if (!rest && value)
            json_object_set_new(at, key, new);
        else if (!rest)
            json_object_del(at, key);
        at = json_is_array(at) ? json_array_get(at, strtoul(key, NULL, 10))
                               : json_object_get(at, key);
    }
}

static void refuse_text(const char *what, const char *text, size_t len, int want,
                        const char *says)
{
    struct tokenizer *t = NULL;
    struct capture c = capture_begin();
    int err = tokenizer_parse_json(&t, text, len, "test");
    char *line = capture_end(c);

    if (err != want || t || !capture_is_one_line(line) || !strstr(line, says))
        fail_msg("%s: error %d, but %d with \"%s\" was expected: %s", what, err, want,
                 says, line);
    if (getenv("SHOW_REFUSALS"))
        fprintf(stderr, "%s", line);
    free(line);
}

static void json_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(spoils); i++) {
        const struct spoil *s = &spoils[i];
        json_t *root = read_json(TEST_DATA("data/tokenizers/qwen2.json"));
        spoil(root, s->path, s->value);
        char *text = json_dumps(root, 0);
        refuse_text(s->path, text, strlen(text), s->want, s->says);
        free(text);
        json_decref(root);
    }
}

static void json_text(void **state)
{
    static char deep[100000];

    (void)state;
    refuse_text("empty", "", 0, -EINVAL, "not valid JSON");
    refuse_text("list", "[]", 2, -EINVAL, "object was expected");
    refuse_text("cut", "{\"model\": ", 10, -EINVAL, "not valid JSON");
    refuse_text("twice", "{\"model\": 1, \"model\": 2}", 24, -EINVAL, "duplicate");
    refuse_text("bytes", "{\"\xff\": 1}", 8, -EINVAL, "not valid JSON");
    memset(deep, '[', sizeof(deep));
    refuse_text("deep", deep, sizeof(deep), -EINVAL, "not valid JSON");
}

/* Nested Sequences, as deep as the JSON parser lets them be. */
static void json_nested(void **state)
{
    static const char open[] = "{\"type\":\"Sequence\",\"pretokenizers\":[";
    json_t *root = read_json(TEST_DATA("data/tokenizers/qwen2.json")),
           *deep = json_null();
    enum { DEPTH = 900 };
    struct bytes b = {0};

    (void)state, (void)deep;
    for (int i = 0; i < DEPTH; i++)
        bytes_put(&b, open, strlen(open));
    bytes_put(&b, "{\"type\":\"Whitespace\"}", 21);
    for (int i = 0; i < DEPTH; i++)
        bytes_put(&b, "]}", 2);
    bytes_put(&b, "", 1);
    spoil(root, "pre_tokenizer", (char *)b.data);
    char *text = json_dumps(root, 0);
    refuse_text("nested", text, strlen(text), -ENOTSUP, "\"Whitespace\"");
    free(text);
    free(b.data);
    json_decref(root);
}

static void refuse_gguf(const char *what, const struct bytes *b, int want,
                        const char *says)
{
    struct capture c = capture_begin();
    int err = 0;
    struct tokenizer *t = open_gguf_bytes(b, &err);
    char *line = capture_end(c);

    if (err != want || t || !capture_is_one_line(line) || !strstr(line, says))
        fail_msg("%s: error %d, but %d with \"%s\" was expected: %s", what, err, want,
                 says, line);
    if (getenv("SHOW_REFUSALS"))
        fprintf(stderr, "%s", line);
    free(line);
}

/* A GGUF file's tokenizer, byte-level or not, of five tokens; parts are left out or
 * wrong. */
struct parts {
    const char *what, *model, *pre;
    const char *tokens[5]; /* "": an empty one */
    const char *merge;     /* NULL: no merges */
    size_t n_types, n_scores;
    float score;
    const char *key; /* one more, a number */
    uint64_t value;
    int want;
    const char *says;
};

static struct bytes gguf_of_parts(const struct parts *p)
{
    size_t keys = 2 + (p->pre != NULL) + (p->merge != NULL) + (p->n_types > 0) +
                  (p->n_scores > 0) + (p->key != NULL);
    struct bytes b = {0};

    bytes_put(&b, "GGUF", 4);
    bytes_int(&b, 3, 4);
    bytes_int(&b, 0, 8);
    bytes_int(&b, keys, 8);
    put_text_key(&b, "tokenizer.ggml.model", p->model);
    if (p->pre)
        put_text_key(&b, "tokenizer.ggml.pre", p->pre);
    put_array(&b, "tokenizer.ggml.tokens", 8, 5);
    for (size_t i = 0; i < 5; i++)
        gguf_put_string(&b, p->tokens[i] ? p->tokens[i] : "");
    if (p->merge) {
        put_array(&b, "tokenizer.ggml.merges", 8, 1);
        gguf_put_string(&b, p->merge);
    }
    if (p->n_types)
        put_array(&b, "tokenizer.ggml.token_type", 5, p->n_types);
    for (size_t i = 0; i < p->n_types; i++)
        bytes_int(&b, i == 0 ? 3 : 1, 4);
    if (p->n_scores)
        put_array(&b, "tokenizer.ggml.scores", 6, p->n_scores);
    for (size_t i = 0; i < p->n_scores; i++)
        bytes_put(&b, &p->score, 4);
    if (p->key)
        gguf_put_int(&b, p->key, 4, p->value, 4);
    return b;
}

#define TOKENS                                                                           \
    {                                                                                    \
        "<s>", "a", "b", "ab", "c"                                                       \
    }
#define BOS "tokenizer.ggml.bos_token_id"

static void gguf_parts(void **state)
{
    static const struct parts list[] = {
        {"model", "bert", "gpt-2", TOKENS, "a b", .want = -ENOTSUP, .says = "\"bert\""},
        {"pre", "gpt2", "klingon", TOKENS, "a b", .want = -ENOTSUP,
         .says = "\"klingon\""},
        {"no pre name", "gpt2", "", TOKENS, "a b", .want = -ENOTSUP, .says = "\"\""},
        {"two pre names", "gpt2", "llama3 llama-v3", TOKENS, "a b", .want = -ENOTSUP,
         .says = "\"llama3 llama-v3\""},
        {"merges", "gpt2", "gpt-2", TOKENS, .want = -EINVAL,
         .says = "tokenizer.ggml.merges"},
        {"half a merge", "gpt2", "gpt-2", TOKENS, "a", .want = -EINVAL,
         .says = "merge 0"},
        {"half a merge", "gpt2", "gpt-2", TOKENS, "a ", .want = -EINVAL,
         .says = "merge 0"},
        {"other merge", "gpt2", "gpt-2", TOKENS, "b a", .want = -EINVAL,
         .says = "merge 0"},
        {"token twice",
         "gpt2",
         "gpt-2",
         {"a", "b", "c", "ab", "a"},
         "a b",
         .want = -EINVAL,
         .says = "token 4"},
        {"types", "gpt2", "gpt-2", TOKENS, "a b", 4, .want = -EINVAL,
         .says = "token_type"},
        {"bos", "gpt2", "gpt-2", TOKENS, "a b", 5, .key = BOS, .value = 5,
         .want = -EINVAL, .says = BOS},
        {"scores", "llama", "default", TOKENS, .want = -EINVAL, .says = "scores"},
        {"few scores", "llama", "default", TOKENS, .n_scores = 4, .want = -EINVAL,
         .says = "scores"},
        {"NaN scores", "llama", "default", TOKENS, .n_scores = 5,
         .score = __builtin_nanf(""), .want = -EINVAL, .says = "a score is not a number"},
        {"unknown", "llama", "default", TOKENS, .n_scores = 5,
         .key = "tokenizer.ggml.unknown_token_id", .value = 9, .want = -EINVAL,
         .says = "unknown_token_id"},
        {"flag", "llama", "default", TOKENS, .n_scores = 5,
         .key = "tokenizer.ggml.add_space_prefix", .value = 1, .want = -EINVAL,
         .says = "add_space_prefix"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct bytes b = gguf_of_parts(&list[i]);
        refuse_gguf(list[i].what, &b, list[i].want, list[i].says);
        free(b.data);
    }
}

/* Folders: no tokenizer is no error, one in another form is. */
static void folders(void **state)
{
    static const char config[] = "{\"add_bos_token\": true, \"bos_token\": \"<none>\"}";
    struct model m = {.path = files_dir, .dir = files_dir};
    struct tokenizer *t;

    (void)state;
    files_create();
    assert_int_equal(tokenizer_open(&t, &m), 0);
    assert_null(t);
    files_write("tokenizer.model", "x", 1);
    struct capture c = capture_begin();
    assert_int_equal(tokenizer_open(&t, &m), -ENOTSUP);
    char *line = capture_end(c);
    assert_true(capture_is_one_line(line) && strstr(line, "tokenizer.model"));
    free(line);
    json_t *root = read_json(TEST_DATA("data/tokenizers/qwen2.json"));
    char *text = json_dumps(root, 0);
    files_write("tokenizer.json", text, strlen(text));
    files_write("tokenizer_config.json", config, strlen(config));
    c = capture_begin();
    assert_int_equal(tokenizer_open(&t, &m), -EINVAL);
    line = capture_end(c);
    assert_true(capture_is_one_line(line) && strstr(line, "add_bos_token"));
    assert_null(t);
    free(line);
    free(text);
    json_decref(root);
    files_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_parts),  cmocka_unit_test(json_text),
        cmocka_unit_test(json_nested), cmocka_unit_test(gguf_parts),
        cmocka_unit_test(folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
