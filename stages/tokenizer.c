/* Text to token ids and back. The order of work is that of the tokenizers library: added
 * tokens, normalizer, added tokens that are matched in normalised text, pre-tokenizer,
 * model. */
#include "stages/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/file.h"
#include "stages/gguf.h"
#include "stages/model.h"
#include "stages/tokenizer_parts.h"

/* Text of one call; symbols of a piece are counted in 31 bits. */
#define MAX_TEXT ((size_t)1 << 30)

/* One call of tokenizer_encode. */
struct encoder {
    const struct tokenizer *t;
    struct norm_work norm;
    struct pre_work pre;
    struct bpe_work bpe;
    struct ids ids;
    bool special;
    bool first; /* nothing was encoded yet */
    bool open;  /* the same, or the last thing was a special token */
};

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_fini(&t->vocab);
    bpe_fini(&t->bpe);
    normalizer_fini(&t->normalizer);
    added_fini(&t->added);
    added_fini(&t->added_normalized);
    pretokenizer_fini(&t->pre);
    free(t);
}

int tokenizer_parse_json(struct tokenizer **out, const char *json, size_t len,
                         const char *name)
{
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof(*t));
    if (!t)
        return file_no_memory(name);
    int err = tokenizer_read_json(t, json, len, name);
    if (err) {
        tokenizer_close(t);
        return err;
    }
    *out = t;
    return 0;
}

/* A tokenizer in a form that is not read: saying so beats running without one. */
static int refuse_other(const char *dir)
{
    static const char *const others[] = {"tokenizer.model", "vocab.json", "vocab.txt"};
    char *path = NULL;
    int err = 0;

    for (size_t i = 0; i < ARRAY_LEN(others) && !err; i++) {
        err = file_join(&path, dir, others[i]);
        if (!err && !access(path, F_OK)) {
            log_error("%s: only tokenizer.json is read: save the tokenizer as one", path);
            err = -ENOTSUP;
        }
        free(path);
        path = NULL;
    }
    return err;
}

static int open_folder(struct tokenizer **out, const char *dir)
{
    struct file_map map;
    char *path;
    int err = file_join(&path, dir, "tokenizer.json");

    if (err)
        return err;
    if (access(path, F_OK)) {
        free(path);
        return refuse_other(dir);
    }
    err = file_map(&map, path);
    if (!err) {
        err = tokenizer_parse_json(out, (const char *)map.data, map.bytes, path);
        file_unmap(&map);
    }
    free(path);
    if (!err)
        err = tokenizer_read_config(*out, dir);
    return err;
}

static int open_gguf(struct tokenizer **out, const struct model *m)
{
    struct gguf_str kind = {0};
    const struct gguf_kv *kv = gguf_find(m->gguf, "tokenizer.ggml.model");

    if (!kv ||
        (!gguf_string(&kind, kv) && kind.len == 4 && !memcmp(kind.data, "none", 4)))
        return 0;
    *out = calloc(1, sizeof(**out));
    if (!*out)
        return file_no_memory(m->path);
    return tokenizer_read_gguf(*out, m->gguf, m->path);
}

int tokenizer_open(struct tokenizer **out, const struct model *m)
{
    int err = 0;

    *out = NULL;
    if (m->dir)
        err = open_folder(out, m->dir);
    else if (m->gguf)
        err = open_gguf(out, m);
    if (err) {
        tokenizer_close(*out);
        *out = NULL;
    }
    return err;
}

int tokenizer_add(struct tokenizer *t, struct added_token token, const char *content,
                  size_t len, bool normalized, const char *name)
{
    char text[64];
    int err =
        added_insert(normalized ? &t->added_normalized : &t->added, content, len, token);

    if (err == -EEXIST) {
        log_error("%s: added token %d, \"%s\", is there twice", name, token.id,
                  file_text(text, sizeof(text), content, len));
        return -EINVAL;
    }
    return err;
}

void tokenizer_find_bytes(struct tokenizer *t)
{
    char text[8];

    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        snprintf(text, sizeof(text), "<0x%02X>", (unsigned)i);
        t->bpe.bytes[i] = t->bpe.byte_level ? vocab_find(&t->vocab, &byte, 1)
                                            : vocab_find(&t->vocab, text, 6);
    }
}

/* Plain text that is normalised: cut into pieces, encoded. */
static int encode_pieces(struct encoder *e, const char *text, size_t len)
{
    int err = pretokenize(&e->t->pre, &e->pre, text, len, e->first);

    for (size_t i = 0; i < e->pre.pieces.n && !err; i++) {
        struct span piece = e->pre.pieces.data[i];
        err = bpe_encode(&e->t->bpe, &e->t->vocab, &e->bpe, &e->ids,
                         e->pre.text.data + piece.at, piece.len);
    }
    if (len)
        e->first = e->open = false;
    return err;
}

static int encode_added(struct encoder *e, const struct added_token *token)
{
    e->first = false;
    e->open = token->special;
    return ids_add(&e->ids, token->id);
}

/* Plain text as it was given. */
static int encode_plain(struct encoder *e, const char *text, size_t len)
{
    const struct added_token *token;
    size_t at, n;
    int err = normalize(&e->t->normalizer, &e->norm, text, len, e->open);
    struct added_walk walk = {.added = &e->t->added_normalized,
                              .text = e->norm.text.data,
                              .len = e->norm.text.len,
                              .special = e->special};

    while (!err) {
        token = added_next(&walk, &at, &n);
        if (n)
            err = encode_pieces(e, walk.text + at, n);
        if (!token)
            break;
        if (!err)
            err = encode_added(e, token);
    }
    return err;
}

/* Valid UTF-8. */
static int encode_valid(struct encoder *e, const char *text, size_t len)
{
    struct added_walk walk = {
        .added = &e->t->added, .text = text, .len = len, .special = e->special};
    const struct added_token *token;
    size_t at, n;
    int err = 0;

    while (!err) {
        token = added_next(&walk, &at, &n);
        if (n)
            err = encode_plain(e, text + at, n);
        if (!token)
            break;
        if (!err)
            err = encode_added(e, token);
    }
    return err;
}

/* Bytes that are no UTF-8: no pattern and no normalizer sees them. */
static int encode_invalid(struct encoder *e, const char *text, size_t len)
{
    e->first = e->open = false;
    return bpe_encode(&e->t->bpe, &e->t->vocab, &e->bpe, &e->ids, text, len);
}

static int encode_all(struct encoder *e, const char *text, size_t len)
{
    int err = 0;

    for (size_t at = 0, n; at < len && !err; at += n) {
        n = utf8_prefix(text + at, len - at);
        if (n) {
            err = encode_valid(e, text + at, n);
            continue;
        }
        while (at + n < len &&
               !utf8_prefix(text + at + n, len - at - n < 4 ? len - at - n : 4))
            n++;
        err = encode_invalid(e, text + at, n);
    }
    return err;
}

/* Whether the ids begin with the start tokens, as a chat template may have written
 * them. */
static bool begins(const struct encoder *e)
{
    size_t n = e->t->n_bos;
    return e->ids.n >= n && !memcmp(e->ids.data, e->t->bos, n * sizeof(*e->t->bos));
}

static int add_bos(struct encoder *e)
{
    size_t n = e->t->n_bos;
    int err = 0;

    if (!n || (e->special && begins(e)))
        return 0;
    err =
        text_room((void **)&e->ids.data, &e->ids.cap, e->ids.n, n, sizeof(*e->ids.data));
    if (err)
        return err;
    memmove(e->ids.data + n, e->ids.data, e->ids.n * sizeof(*e->ids.data));
    memcpy(e->ids.data, e->t->bos, n * sizeof(*e->ids.data));
    e->ids.n += n;
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, int32_t **ids, size_t *n,
                     const char *text, size_t len, bool special, bool bos)
{
    struct encoder e = {.t = t, .special = special, .first = true, .open = true};
    int err = text_room((void **)&e.ids.data, &e.ids.cap, 0, 1, sizeof(*e.ids.data));

    if (!err && len > MAX_TEXT) {
        log_error("tokenizer: a text of %zu bytes is too long: cut it to 1 GiB", len);
        err = -E2BIG;
    }
    if (!err)
        err = encode_all(&e, text, len);
    if (!err && bos)
        err = add_bos(&e);
    norm_work_fini(&e.norm);
    pre_work_fini(&e.pre);
    bpe_work_fini(&e.bpe);
    if (err) {
        free(e.ids.data);
        return err;
    }
    *ids = e.ids.data;
    *n = e.ids.n;
    return 0;
}

size_t tokenizer_size(const struct tokenizer *t)
{
    return t->vocab.n;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *token)
{
    return vocab_find(&t->vocab, token, strlen(token));
}
