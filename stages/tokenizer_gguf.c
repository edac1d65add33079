/* The tokenizer in a GGUF file's metadata: byte-level BPE ("gpt2") and SentencePiece's
 * BPE ("llama"). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/gguf.h"
#include "stages/patterns.h"
#include "stages/tokenizer_parts.h"

#define MARK "\xe2\x96\x81" /* U+2581, a space in SentencePiece's vocabularies */

enum { MAX_SPLITS = 6 };

/* A tokenizer by the name that tokenizer.ggml.pre has for it: what its tokenizer.json
 * says and the metadata does not. */
struct pre_known {
    const char *names; /* between spaces */
    const char *splits[MAX_SPLITS];
    bool ignore_merges, bos, nfc;
};

static const struct pre_known known[] = {
    {.names = " default gpt-2 ", .splits = {PATTERN_GPT2}},
    {.names = " llama3 llama-v3 llama-bpe falcon3 ",
     .splits = {PATTERN_LLAMA3},
     .ignore_merges = true,
     .bos = true},
    {.names = " dbrx smaug-bpe ", .splits = {PATTERN_LLAMA3}},
    {.names = " qwen2 megrez ", .splits = {PATTERN_QWEN2}, .nfc = true},
    {.names = " deepseek-r1-qwen stablelm2 ", .splits = {PATTERN_QWEN2}},
    {.names = " smollm starcoder refact command-r codeshell ",
     .splits = {"\\p{N}", PATTERN_GPT2}},
    {.names = " tekken ", .splits = {PATTERN_TEKKEN}, .ignore_merges = true, .bos = true},
    {.names = " deepseek-llm ",
     .splits = {"[\\r\\n]", PATTERN_CASED, PATTERN_MARKS, "\\s+$", PATTERN_CJK,
                "\\p{N}"}},
    {.names = " deepseek-coder ",
     .splits = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", PATTERN_CJK, "\\p{N}"}},
    {.names = " deepseek-v3 ",
     .splits = {"\\p{N}{1,3}", PATTERN_CJK_V3, PATTERN_DEEPSEEK_V3}},
};

/* Values of tokenizer.ggml.token_type. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

/* A reader of one file. */
struct gguf_reader {
    struct tokenizer *t;
    const struct gguf *g;
    const char *name;
    struct gguf_str *tokens;              /* (n) */
    const struct gguf_kv *types, *scores; /* (n) or NULL */
    size_t n;
    bool sentencepiece;
    bool bos;       /* unless the metadata says otherwise */
    int64_t bos_id; /* -1: none */
    struct text scratch;
};

static int wrong(const struct gguf_reader *r, const char *key, const char *why)
{
    log_error("%s: %s: %s", r->name, key, why);
    return -EINVAL;
}

static int get_flag(const struct gguf_reader *r, const char *key, bool *out)
{
    const struct gguf_kv *kv = gguf_find(r->g, key);
    return !kv || !gguf_bool(out, kv) ? 0 : wrong(r, key, "not a truth value");
}

/* A list of n numbers; NULL if there is none. */
static int get_numbers(const struct gguf_reader *r, const char *key,
                       const struct gguf_kv **out)
{
    double number;

    *out = gguf_find(r->g, key);
    if (*out && (!(*out)->array || (*out)->count != r->n || gguf_float(&number, *out, 0)))
        return wrong(r, key, "not a list of as many numbers as there are tokens");
    return 0;
}

static int get_id(const struct gguf_reader *r, const char *key, int64_t *out)
{
    const struct gguf_kv *kv = gguf_find(r->g, key);

    if (!kv)
        return 0;
    if (kv->array || gguf_int(out, kv, 0))
        return wrong(r, key, "not a number");
    return *out >= 0 && (uint64_t)*out < r->n ? 0
                                              : wrong(r, key, "not in the vocabulary");
}

static int read_lists(struct gguf_reader *r)
{
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_kv *kv = gguf_find(r->g, key);

    if (!kv || gguf_strings(&r->tokens, kv))
        return wrong(r, key, "no list of strings");
    r->n = kv->count;
    if (!r->n || r->n > (size_t)TOKENIZER_MAX_ID + 1)
        return wrong(r, key, "not a sensible number of tokens");
    int err = get_numbers(r, "tokenizer.ggml.token_type", &r->types);
    return err ? err : get_numbers(r, "tokenizer.ggml.scores", &r->scores);
}

static enum vocab_kind token_kind(const struct gguf_reader *r, size_t i)
{
    int64_t type = TYPE_NORMAL;

    if (r->types)
        gguf_int(&type, r->types, i);
    switch (type) {
    case TYPE_UNKNOWN:
    case TYPE_CONTROL:
        return VOCAB_SPECIAL;
    case TYPE_USER:
        return VOCAB_ADDED;
    case TYPE_UNUSED:
        return VOCAB_UNUSED;
    case TYPE_BYTE:
        return r->sentencepiece ? VOCAB_BYTE : VOCAB_NORMAL;
    default:
        return VOCAB_NORMAL;
    }
}

/* The bytes of a token; special and added ones are text as it stands, the others may be
 * in the byte-level alphabet. */
static int token_bytes(struct gguf_reader *r, const char *data, size_t len,
                       enum vocab_kind kind)
{
    int err = 0;

    r->scratch.len = 0;
    if (r->t->bpe.byte_level && kind == VOCAB_NORMAL &&
        vocab_from_alphabet(&r->scratch, data, len, &err))
        return 0;
    return err ? err : text_add(&r->scratch, data, len);
}

/* Tokens of the wanted kind; others were or will be read. */
static int read_tokens(struct gguf_reader *r, bool normal)
{
    struct tokenizer *t = r->t;
    char text[64];

    for (size_t i = 0; i < r->n; i++) {
        struct gguf_str s = r->tokens[i];
        enum vocab_kind kind = token_kind(r, i);
        if ((kind == VOCAB_NORMAL) != normal || !s.len)
            continue;
        int err = token_bytes(r, s.data, s.len, kind);
        if (!err && normal &&
            vocab_find(&t->vocab, r->scratch.data, r->scratch.len) >= 0) {
            log_error("%s: token %zu, \"%s\", is in the vocabulary twice", r->name, i,
                      file_text(text, sizeof(text), s.data, s.len));
            return -EINVAL;
        }
        if (!err)
            err = vocab_set(&t->vocab, i, r->scratch.data, r->scratch.len, kind);
        struct added_token token = {.id = (int32_t)i, .special = kind == VOCAB_SPECIAL};
        if (!err && (kind == VOCAB_SPECIAL || kind == VOCAB_ADDED))
            err = tokenizer_add(t, token, s.data, s.len, false, r->name);
        if (err)
            return err;
    }
    return 0;
}

static int read_vocab(struct gguf_reader *r)
{
    int err = vocab_init(&r->t->vocab, r->n);
    if (!err)
        err = read_tokens(r, true);
    if (!err)
        err = read_tokens(r, false);
    if (!err)
        tokenizer_find_bytes(r->t);
    return err;
}

/* The id of a part of a merge; its bytes are added to both. */
static int merge_part(struct gguf_reader *r, const char *data, size_t len,
                      struct text *both)
{
    if (token_bytes(r, data, len, VOCAB_NORMAL) ||
        text_add(both, r->scratch.data, r->scratch.len))
        return -1;
    return vocab_find(&r->t->vocab, r->scratch.data, r->scratch.len);
}

static int read_merge(struct gguf_reader *r, size_t i, struct gguf_str s,
                      struct text *both)
{
    /* A part is not empty, and may begin with what cuts the others. */
    const char *space = s.len > 2 ? memchr(s.data + 1, ' ', s.len - 2) : NULL;
    size_t n = space ? (size_t)(space - s.data) : 0;
    char text[64];

    both->len = 0;
    int32_t left = space ? merge_part(r, s.data, n, both) : -1;
    int32_t right = space ? merge_part(r, space + 1, s.len - n - 1, both) : -1;
    int32_t id =
        left < 0 || right < 0 ? -1 : vocab_find(&r->t->vocab, both->data, both->len);
    if (id >= 0) {
        bpe_add(&r->t->bpe, left, right, id, (uint32_t)i);
        return 0;
    }
    log_error("%s: merge %zu, \"%s\", is no pair of tokens that make a token", r->name, i,
              file_text(text, sizeof(text), s.data, s.len));
    return -EINVAL;
}

static int read_merges(struct gguf_reader *r, const struct gguf_str *merges, size_t n)
{
    struct text both = {0};
    int err = 0;

    for (size_t i = 0; i < n && !err; i++)
        err = read_merge(r, i, merges[i], &both);
    text_fini(&both);
    return err;
}

/* The known tokenizer of that name; without a name GPT-2's. */
static int find_known(const struct gguf_reader *r, const struct pre_known **out)
{
    const struct gguf_kv *kv = gguf_find(r->g, "tokenizer.ggml.pre");
    struct gguf_str pre = {"default", 7};
    char name[48], text[48];

    if (!kv)
        log_warn("%s: no tokenizer.ggml.pre: GPT-2's pre-tokenizer is used", r->name);
    else if (gguf_string(&pre, kv))
        return wrong(r, "tokenizer.ggml.pre", "not a string");
    snprintf(name, sizeof(name), " %s ",
             file_text(text, sizeof(text) - 2, pre.data, pre.len));
    for (size_t i = 0; i < ARRAY_LEN(known) && pre.len && !strchr(text, ' '); i++) {
        if (!strstr(known[i].names, name))
            continue;
        *out = &known[i];
        return 0;
    }
    log_error("%s: pre-tokenizer \"%s\" is not supported", r->name, text);
    return -ENOTSUP;
}

static int use_known(struct gguf_reader *r)
{
    const struct pre_known *k = NULL;
    int err = find_known(r, &k);

    for (size_t i = 0; !err && i < MAX_SPLITS && k->splits[i]; i++)
        err = pretokenizer_split(&r->t->pre, k->splits[i], r->name);
    if (err)
        return err;
    r->t->bpe.byte_level = true;
    r->t->bpe.ignore_merges = k->ignore_merges;
    r->bos = k->bos;
    return k->nfc
               ? normalizer_add(&r->t->normalizer, (struct norm_step){.kind = NORM_NFC})
               : 0;
}

static int read_byte_level(struct gguf_reader *r)
{
    const char *key = "tokenizer.ggml.merges";
    const struct gguf_kv *kv = gguf_find(r->g, key);
    struct gguf_str *merges = NULL;

    if (!kv || gguf_strings(&merges, kv))
        return wrong(r, key, "no list of strings");
    int err = bpe_init(&r->t->bpe, kv->count);
    if (!err)
        err = use_known(r);
    if (!err)
        err = read_vocab(r);
    if (!err)
        err = read_merges(r, merges, kv->count);
    free(merges);
    return err;
}

/* A space before the text if the file wants one, and marks for spaces. */
static int mark_spaces(struct gguf_reader *r, bool prefix)
{
    struct norm_step open = {.kind = NORM_OPEN}, mark = {.kind = NORM_REPLACE};
    int err = prefix ? text_add(&open.text, MARK, strlen(MARK)) : 0;

    if (!err && prefix)
        err = normalizer_add(&r->t->normalizer, open);
    if (!err)
        err = pattern_create(&mark.pattern, " ", 1, true, r->name);
    if (!err)
        err = text_add(&mark.text, MARK, strlen(MARK));
    if (!err)
        return normalizer_add(&r->t->normalizer, mark);
    pattern_destroy(mark.pattern);
    return err;
}

static int read_scores(struct gguf_reader *r)
{
    double *scores = calloc(r->n, sizeof(*scores));
    int err = scores ? 0 : file_no_memory(r->name);

    for (size_t i = 0; i < r->n && !err; i++) {
        gguf_float(&scores[i], r->scores, i);
        if (isnan(scores[i]))
            err = wrong(r, "tokenizer.ggml.scores", "a score is not a number");
    }
    if (!err)
        err = tokenizer_score_merges(r->t, scores, r->name);
    free(scores);
    return err;
}

static int read_sentencepiece(struct gguf_reader *r)
{
    bool prefix = true, squeeze = false;
    int64_t unknown = 0;
    int err = get_flag(r, "tokenizer.ggml.add_space_prefix", &prefix);

    if (!err)
        err = get_flag(r, "tokenizer.ggml.remove_extra_whitespaces", &squeeze);
    if (!err && squeeze) {
        log_error("%s: tokenizer.ggml.remove_extra_whitespaces is not supported",
                  r->name);
        return -ENOTSUP;
    }
    if (!err && !r->scores)
        err = wrong(r, "tokenizer.ggml.scores", "there are none");
    if (!err)
        err = get_id(r, "tokenizer.ggml.unknown_token_id", &unknown);
    if (!err)
        err = mark_spaces(r, prefix);
    r->t->decoder =
        (struct tokenizer_decoder){.mark = MARK, .bytes = true, .strip = prefix};
    r->bos = true;
    if (!err)
        err = read_vocab(r);
    if (!err)
        err = read_scores(r);
    r->t->bpe.unknown = (int32_t)unknown;
    r->t->bpe.fallback = r->t->bpe.fuse_unknown = true;
    return err;
}

static int read_bos(struct gguf_reader *r)
{
    int err = get_flag(r, "tokenizer.ggml.add_bos_token", &r->bos);
    if (!err)
        err = get_id(r, "tokenizer.ggml.bos_token_id", &r->bos_id);
    if (!err && r->bos && r->bos_id >= 0)
        r->t->bos[r->t->n_bos++] = (int32_t)r->bos_id;
    return err;
}

static int read_model(struct gguf_reader *r)
{
    const char *key = "tokenizer.ggml.model";
    const struct gguf_kv *kv = gguf_find(r->g, key);
    struct gguf_str model;
    char text[48];

    if (!kv || gguf_string(&model, kv))
        return wrong(r, key, "no string");
    file_text(text, sizeof(text), model.data, model.len);
    r->sentencepiece = !strcmp(text, "llama");
    if (!r->sentencepiece && strcmp(text, "gpt2")) {
        log_error("%s: a tokenizer of type \"%s\" is not supported, only gpt2 and llama",
                  r->name, text);
        return -ENOTSUP;
    }
    int err = read_lists(r);
    if (!err)
        err = r->sentencepiece ? read_sentencepiece(r) : read_byte_level(r);
    return err ? err : read_bos(r);
}

int tokenizer_read_gguf(struct tokenizer *t, const struct gguf *g, const char *name)
{
    struct gguf_reader r = {.t = t, .g = g, .name = name, .bos_id = -1};
    int err = read_model(&r);

    free(r.tokens);
    text_fini(&r.scratch);
    return err;
}
