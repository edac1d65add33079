/* tokenizer.json: the model (BPE) and the added tokens. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/doc.h"
#include "stages/file.h"
#include "stages/tokenizer_parts.h"

/* A reader of one file. */
struct json_reader {
    struct tokenizer *t;
    const json_t *model, *vocab, *merges, *added;
    const char *name;
    struct text scratch;
};

static int wrong(const struct json_reader *r, const char *what)
{
    log_error("%s: %s", r->name, what);
    return -EINVAL;
}

/* Says which token is wrong. */
static int wrong_token(const struct json_reader *r, const char *token, const char *what)
{
    char text[64];
    log_error("%s: token \"%s\": %s", r->name,
              file_text(text, sizeof(text), token, strlen(token)), what);
    return -EINVAL;
}

static int get_id(const struct json_reader *r, int32_t *id, const json_t *value,
                  const char *token)
{
    json_int_t n = json_is_integer(value) ? json_integer_value(value) : -1;

    if (n < 0 || n > TOKENIZER_MAX_ID)
        return wrong_token(r, token, "its id is not a number from 0 to 16777215");
    *id = (int32_t)n;
    return 0;
}

static int model_fields(struct json_reader *r, const json_t *root)
{
    const char *type = "BPE";

    r->model = json_object_get(root, "model");
    if (!json_is_object(r->model))
        return wrong(r, "no \"model\"");
    int err = doc_string(&type, r->model, "type", r->name);
    if (err)
        return err;
    if (strcmp(type, "BPE")) {
        char text[32];
        log_error("%s: a tokenizer of type \"%s\" is not supported, only BPE", r->name,
                  file_text(text, sizeof(text), type, strlen(type)));
        return -ENOTSUP;
    }
    r->vocab = json_object_get(r->model, "vocab");
    r->merges = json_object_get(r->model, "merges");
    r->added = json_object_get(root, "added_tokens");
    if (json_is_null(r->added))
        r->added = NULL;
    if (!json_is_object(r->vocab))
        return wrong(r, "\"vocab\" of the model is not an object");
    if (!json_is_array(r->merges))
        return wrong(r, "\"merges\" of the model is not a list");
    return !r->added || json_is_array(r->added)
               ? 0
               : wrong(r, "\"added_tokens\" is not a list");
}

/* Settings that change what a token is and that no supported model has. */
static int model_refuse(struct json_reader *r)
{
    static const char *const affixes[] = {"continuing_subword_prefix",
                                          "end_of_word_suffix"};
    double dropout = 0;

    for (size_t i = 0; i < ARRAY_LEN(affixes); i++) {
        const char *affix = "";
        int err = doc_string(&affix, r->model, affixes[i], r->name);
        if (err)
            return err;
        if (!*affix)
            continue;
        log_error("%s: \"%s\" is not supported", r->name, affixes[i]);
        return -ENOTSUP;
    }
    int err = doc_number(&dropout, r->model, "dropout", r->name);
    if (err || dropout == 0)
        return err;
    log_error("%s: \"dropout\" is not supported: set it to null", r->name);
    return -ENOTSUP;
}

/* The content and id of added token i. */
static int added_at(const struct json_reader *r, size_t i, const char **content,
                    int32_t *id)
{
    const json_t *item = json_array_get(r->added, i);

    *content = json_string_value(json_object_get(item, "content"));
    if (!*content)
        return wrong(r, "an added token has no \"content\"");
    return get_id(r, id, json_object_get(item, "id"), *content);
}

/* Sizes the vocabulary: a few ids may be missing, but no more than there are. */
static int vocab_size(struct json_reader *r)
{
    size_t n = json_object_size(r->vocab) + json_array_size(r->added);
    const char *token;
    json_t *value;
    int32_t id, last = -1;
    int err = 0;

    json_object_foreach((json_t *)r->vocab, token, value)
    {
        err = get_id(r, &id, value, token);
        if (err)
            return err;
        last = id > last ? id : last;
    }
    for (size_t i = 0; i < json_array_size(r->added); i++) {
        err = added_at(r, i, &token, &id);
        if (err)
            return err;
        last = id > last ? id : last;
    }
    if (last >= 0 && (size_t)last > 2 * n + 65536) {
        log_error("%s: %zu tokens have ids up to %d", r->name, n, last);
        return -EINVAL;
    }
    return vocab_init(&r->t->vocab, (size_t)(last + 1));
}

/* Marks the ids of added tokens: their text stands as it is. */
static int mark_added(struct json_reader *r)
{
    const char *content;
    int32_t id;

    for (size_t i = 0; i < json_array_size(r->added); i++) {
        int err = added_at(r, i, &content, &id);
        bool special = false;
        if (!err)
            err = doc_flag(&special, json_array_get(r->added, i), "special", r->name);
        if (err)
            return err;
        if (r->t->vocab.tokens[id].kind != VOCAB_HOLE)
            return wrong_token(r, content, "another added token has its id");
        r->t->vocab.tokens[id].kind = special ? VOCAB_SPECIAL : VOCAB_ADDED;
        const json_t *other = json_object_get(r->vocab, content);
        if (other && json_integer_value(other) != id)
            return wrong_token(r, content, "its id as an added token is another one");
    }
    return 0;
}

/* The bytes of a token as the file writes it; *plain: byte-level text that uses other
 * characters and is taken as it is. */
static int token_bytes(struct json_reader *r, const char *token, bool *plain)
{
    int err = 0;

    r->scratch.len = 0;
    *plain = false;
    if (r->t->bpe.byte_level &&
        vocab_from_alphabet(&r->scratch, token, strlen(token), &err))
        return 0;
    *plain = r->t->bpe.byte_level;
    return err ? err : text_add(&r->scratch, token, strlen(token));
}

/* Reads the tokens that are plain, or those that are not. */
static int read_vocab(struct json_reader *r, bool plain)
{
    struct vocab *v = &r->t->vocab;
    const char *token;
    json_t *value;
    bool is_plain;

    json_object_foreach((json_t *)r->vocab, token, value)
    {
        size_t id = (size_t)json_integer_value(value);
        enum vocab_kind kind = v->tokens[id].kind;
        int err = token_bytes(r, token, &is_plain);
        if (!err && is_plain != plain)
            continue;
        if (!err && v->tokens[id].len)
            err = wrong_token(r, token, "another token has its id");
        if (!err)
            err = vocab_set(v, id, r->scratch.data, r->scratch.len,
                            kind == VOCAB_HOLE ? VOCAB_NORMAL : kind);
        if (err)
            return err;
    }
    return 0;
}

/* The text that is matched is the text of the token, unless the vocabulary has it as
 * well. */
static int add_token(struct json_reader *r, const json_t *item, const char *content,
                     struct added_token token)
{
    struct vocab *v = &r->t->vocab;
    struct norm_work norm = {0};
    bool normalized = false;
    int err = doc_flag(&normalized, item, "normalized", r->name);

    if (!err)
        err = doc_flag(&token.special, item, "special", r->name);
    if (!err)
        err = doc_flag(&token.single_word, item, "single_word", r->name);
    if (!err)
        err = doc_flag(&token.lstrip, item, "lstrip", r->name);
    if (!err)
        err = doc_flag(&token.rstrip, item, "rstrip", r->name);
    if (!err && normalized)
        err = normalize(&r->t->normalizer, &norm, content, strlen(content), true);
    if (!err && !normalized)
        err = text_add(&norm.text, content, strlen(content));
    if (!err && norm.text.len)
        err = tokenizer_add(r->t, token, norm.text.data, norm.text.len, normalized,
                            r->name);
    bool own = !json_object_get(r->vocab, content);
    if (!err && own && v->tokens[token.id].len)
        err = wrong_token(r, content, "a token of the vocabulary has its id");
    if (!err && own)
        err = vocab_set(v, (size_t)token.id, norm.text.data, norm.text.len,
                        v->tokens[token.id].kind);
    norm_work_fini(&norm);
    return err;
}

static int read_added(struct json_reader *r)
{
    const char *content;
    int32_t id;
    int err = 0;

    for (size_t i = 0; i < json_array_size(r->added) && !err; i++) {
        err = added_at(r, i, &content, &id);
        if (!err)
            err = add_token(r, json_array_get(r->added, i), content,
                            (struct added_token){.id = id});
    }
    return err;
}

/* The two parts of merge i: "a b" or ["a", "b"]. The parts of the former are cut at the
 * space, in a copy. */
static int merge_parts(struct json_reader *r, size_t i, char **copy, const char **left,
                       const char **right)
{
    const json_t *item = json_array_get(r->merges, i);
    const char *text = json_string_value(item);

    *copy = NULL;
    if (text) {
        char *space = strchr(text, ' ') ? strdup(text) : NULL;
        if (space) {
            *copy = space;
            *left = space;
            space = strchr(space, ' ');
            *space = '\0';
            *right = space + 1;
            return 0;
        }
    }
    *left = json_string_value(json_array_get(item, 0));
    *right = json_string_value(json_array_get(item, 1));
    if (json_array_size(item) == 2 && *left && *right)
        return 0;
    log_error("%s: merge %zu is no pair of tokens", r->name, i);
    return -EINVAL;
}

static int find_part(struct json_reader *r, size_t i, const char *token, int32_t *id,
                     struct text *both)
{
    char text[64];
    bool plain;
    int err = token_bytes(r, token, &plain);

    if (!err)
        err = text_add(both, r->scratch.data, r->scratch.len);
    if (err)
        return err;
    *id = vocab_find(&r->t->vocab, r->scratch.data, r->scratch.len);
    if (*id >= 0)
        return 0;
    log_error("%s: merge %zu: \"%s\" is not in the vocabulary", r->name, i,
              file_text(text, sizeof(text), token, strlen(token)));
    return -EINVAL;
}

static int read_merge(struct json_reader *r, size_t i, const char *left,
                      const char *right, struct text *both)
{
    int32_t ids[2];

    both->len = 0;
    int err = find_part(r, i, left, &ids[0], both);
    if (!err)
        err = find_part(r, i, right, &ids[1], both);
    if (err)
        return err;
    int32_t id = vocab_find(&r->t->vocab, both->data, both->len);
    if (id < 0) {
        log_error("%s: merge %zu makes a token that is not in the vocabulary", r->name,
                  i);
        return -EINVAL;
    }
    bpe_add(&r->t->bpe, ids[0], ids[1], id, (uint32_t)i);
    return 0;
}

static int read_merges(struct json_reader *r)
{
    struct text both = {0};
    const char *left, *right;
    char *copy;
    int err = 0;

    for (size_t i = 0; i < json_array_size(r->merges) && !err; i++) {
        err = merge_parts(r, i, &copy, &left, &right);
        if (!err)
            err = read_merge(r, i, left, right, &both);
        free(copy);
    }
    text_fini(&both);
    return err;
}

static int model_flags(struct json_reader *r)
{
    struct bpe *b = &r->t->bpe;
    const char *unknown = NULL;
    int err = doc_flag(&b->ignore_merges, r->model, "ignore_merges", r->name);

    if (!err)
        err = doc_flag(&b->fuse_unknown, r->model, "fuse_unk", r->name);
    if (!err)
        err = doc_flag(&b->fallback, r->model, "byte_fallback", r->name);
    if (!err)
        err = doc_string(&unknown, r->model, "unk_token", r->name);
    if (err)
        return err;
    b->fallback = b->fallback && !b->byte_level;
    b->unknown = unknown ? tokenizer_find(r->t, unknown) : -1;
    if (unknown && b->unknown < 0)
        return wrong_token(r, unknown, "the unknown token is not in the vocabulary");
    tokenizer_find_bytes(r->t);
    return 0;
}

static int read_root(struct json_reader *r, const json_t *root)
{
    struct tokenizer *t = r->t;
    int err = model_fields(r, root);

    if (!err)
        err = model_refuse(r);
    if (!err)
        err = bpe_init(&t->bpe, json_array_size(r->merges));
    if (!err)
        err = tokenizer_json_normalizer(t, json_object_get(root, "normalizer"), r->name);
    if (!err)
        err = tokenizer_json_pre(t, json_object_get(root, "pre_tokenizer"), r->name);
    if (!err)
        err = tokenizer_json_decoder(t, json_object_get(root, "decoder"), r->name);
    if (!err)
        err = vocab_size(r);
    if (!err)
        err = mark_added(r);
    if (!err)
        err = read_vocab(r, false);
    if (!err)
        err = read_vocab(r, true);
    if (!err)
        err = read_added(r);
    if (!err)
        err = read_merges(r);
    if (!err)
        err = model_flags(r);
    return err ? err
               : tokenizer_json_post(t, json_object_get(root, "post_processor"), r->name);
}

int tokenizer_read_json(struct tokenizer *t, const char *json, size_t len,
                        const char *name)
{
    struct json_reader r = {.t = t, .name = name};
    json_t *root;
    int err = doc_parse(&root, json, len, name);

    if (err)
        return err;
    err = read_root(&r, root);
    text_fini(&r.scratch);
    json_decref(root);
    return err;
}

/* A token in tokenizer_config.json: its text, or an object with it. */
static const char *config_token(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_string_value(json_is_object(value) ? json_object_get(value, "content")
                                                   : value);
}

static int apply_config(struct tokenizer *t, const json_t *root, const char *name)
{
    bool add = t->n_bos > 0;
    int err = doc_flag(&add, root, "add_bos_token", name);

    if (err || add == (t->n_bos > 0))
        return err;
    t->n_bos = 0;
    if (!add)
        return 0;
    const char *token = config_token(root, "bos_token");
    int32_t id = token ? tokenizer_find(t, token) : -1;
    if (id < 0) {
        log_error("%s: \"add_bos_token\" without a \"bos_token\" of the vocabulary",
                  name);
        return -EINVAL;
    }
    t->bos[t->n_bos++] = id;
    return 0;
}

int tokenizer_read_config(struct tokenizer *t, const char *dir)
{
    json_t *root = NULL;
    char *path;
    int err = file_join(&path, dir, "tokenizer_config.json");

    if (!err && !access(path, F_OK))
        err = doc_open(&root, path);
    if (!err && root)
        err = apply_config(t, root, path);
    json_decref(root);
    free(path);
    return err;
}
