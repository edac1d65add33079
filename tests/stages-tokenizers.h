/* For tests of tokenizers: JSON files, encoding and decoding that must agree, and GGUF
 * files made of tokenizer.json. */
#ifndef PENSTOCK_STAGES_TOKENIZERS_H
#define PENSTOCK_STAGES_TOKENIZERS_H

#include <jansson.h>

#include "stages/gguf.h"
#include "stages/model.h"
#include "stages/tokenizer.h"
#include "tests/stages-files.h"

static inline json_t *read_json(const char *path)
{
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why);
    if (!root)
        fail_msg("%s: %s", path, why.text);
    return root;
}

static inline struct tokenizer *parse_json(const json_t *root)
{
    char *text = json_dumps(root, JSON_COMPACT);
    struct tokenizer *t;

    assert_non_null(text);
    assert_int_equal(tokenizer_parse_json(&t, text, strlen(text), "test"), 0);
    free(text);
    return t;
}

/* A stream of the ids gives what decoding them whole gives, and never half a
 * character. */
static inline void check_stream(const struct tokenizer *t, const int32_t *ids, size_t n,
                                const char *whole)
{
    struct tokenizer_stream *s;
    struct bytes all = {0};
    const char *text;
    size_t len;

    assert_int_equal(tokenizer_stream_create(&s, t), 0);
    for (size_t i = 0; i <= n; i++) {
        int err = i < n ? tokenizer_stream_next(s, ids[i], &text, &len)
                        : tokenizer_stream_flush(s, &text, &len);
        assert_int_equal(err, 0);
        assert_true(!len || ((uint8_t)text[0] & 0xc0) != 0x80);
        bytes_put(&all, text, len);
    }
    bytes_put(&all, "", 1);
    assert_string_equal((char *)all.data, whole);
    free(all.data);
    tokenizer_stream_destroy(s);
}

/* Encodes text and compares with a JSON list of ids, then decodes them, special tokens
 * too or not. */
static inline void check_case(const struct tokenizer *t, const char *name,
                              const char *text, const json_t *want, const char *decoded,
                              bool special)
{
    int32_t *ids;
    size_t n, len;
    char *back;

    assert_int_equal(tokenizer_encode(t, &ids, &n, text, strlen(text), true, false), 0);
    bool same = n == json_array_size(want);
    for (size_t i = 0; same && i < n; i++)
        same = ids[i] == json_integer_value(json_array_get(want, i));
    if (!same)
        fail_msg("%s: \"%s\" is encoded wrongly", name, text);
    assert_int_equal(tokenizer_decode(t, &back, &len, ids, n, special), 0);
    if (strlen(back) != len || strcmp(back, decoded))
        fail_msg("%s: \"%s\" is decoded as \"%s\", not as \"%s\"", name, text, back,
                 decoded);
    free(back);
    assert_int_equal(tokenizer_decode(t, &back, &len, ids, n, false), 0);
    check_stream(t, ids, n, back);
    free(back);
    free(ids);
}

static inline void put_array(struct bytes *b, const char *key, uint32_t type, size_t n)
{
    gguf_put_key(b, key, 9);
    bytes_int(b, type, 4);
    bytes_int(b, n, 8);
}

static inline void put_text_key(struct bytes *b, const char *key, const char *text)
{
    gguf_put_key(b, key, 8);
    gguf_put_string(b, text);
}

/* Tokens by id and their types: 3 control, 4 user-defined, 1 the others. */
static inline size_t list_tokens(const json_t *root, const char **tokens, int *types)
{
    const json_t *added = json_object_get(root, "added_tokens");
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab");
    const char *token;
    json_t *id;
    size_t n = 0;

    json_object_foreach((json_t *)vocab, token, id)
    {
        size_t at = (size_t)json_integer_value(id);
        tokens[at] = token;
        types[at] = 1;
        n = at + 1 > n ? at + 1 : n;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *item = json_array_get(added, i);
        size_t at = (size_t)json_integer_value(json_object_get(item, "id"));
        tokens[at] = json_string_value(json_object_get(item, "content"));
        types[at] = json_is_true(json_object_get(item, "special")) ? 3 : 4;
        n = at + 1 > n ? at + 1 : n;
    }
    return n;
}

/* The same tokenizer as GGUF metadata. merges in either spelling. */
static inline struct bytes gguf_of_json(const json_t *root, const char *pre,
                                        uint64_t extra_keys)
{
    static const char *tokens[4096];
    static int types[4096];
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    size_t n = list_tokens(root, tokens, types);
    struct bytes b = {0};
    char line[256];

    bytes_put(&b, "GGUF", 4);
    bytes_int(&b, 3, 4);
    bytes_int(&b, 0, 8);
    bytes_int(&b, 5 + extra_keys, 8);
    put_text_key(&b, "tokenizer.ggml.model", "gpt2");
    put_text_key(&b, "tokenizer.ggml.pre", pre);
    put_array(&b, "tokenizer.ggml.tokens", 8, n);
    for (size_t i = 0; i < n; i++)
        gguf_put_string(&b, tokens[i]);
    put_array(&b, "tokenizer.ggml.token_type", 5, n);
    for (size_t i = 0; i < n; i++)
        bytes_int(&b, (uint64_t)types[i], 4);
    put_array(&b, "tokenizer.ggml.merges", 8, json_array_size(merges));
    for (size_t i = 0; i < json_array_size(merges); i++) {
        const json_t *m = json_array_get(merges, i);
        snprintf(line, sizeof(line), "%s %s", json_string_value(json_array_get(m, 0)),
                 json_string_value(json_array_get(m, 1)));
        gguf_put_string(&b, json_is_string(m) ? json_string_value(m) : line);
    }
    return b;
}

/* Opens the tokenizer of a GGUF file in memory; *err is what tokenizer_open returned. */
static inline struct tokenizer *open_gguf_bytes(const struct bytes *b, int *err)
{
    struct model m = {.path = (char *)"test"};
    struct tokenizer *t = NULL;

    assert_int_equal(gguf_parse(&m.gguf, b->data, b->n, "test"), 0);
    *err = tokenizer_open(&t, &m);
    gguf_close(m.gguf);
    return t;
}

#endif
