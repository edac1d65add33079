/* Token ids to text: whole or as a stream. Text is valid UTF-8; of bytes that are none,
 * every part that cannot be the beginning of a character becomes U+FFFD. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/tokenizer.h"
#include "stages/tokenizer_parts.h"

struct tokenizer_stream {
    const struct tokenizer *t;
    bool special; /* special tokens too */
    size_t strip; /* leading spaces still to drop */
    char part[4]; /* the beginning of a character */
    size_t n_part;
    struct text out;
};

static void stream_init(struct tokenizer_stream *s, const struct tokenizer *t,
                        bool special)
{
    *s = (struct tokenizer_stream){.t = t, .special = special, .strip = t->decoder.strip};
}

static int put_replacement(struct tokenizer_stream *s)
{
    return text_add(&s->out, "\xef\xbf\xbd", 3);
}

static int put_byte(struct tokenizer_stream *s, char byte)
{
    uint32_t code;
    int err = 0;

    s->part[s->n_part++] = byte;
    if (!utf8_begins(s->part, s->n_part)) {
        bool again = s->n_part > 1;
        s->n_part = 0;
        err = put_replacement(s);
        return err || !again ? err : put_byte(s, byte);
    }
    if (utf8_next(&code, s->part, s->n_part)) {
        err = text_add(&s->out, s->part, s->n_part);
        s->n_part = 0;
    }
    return err;
}

static int put_bytes(struct tokenizer_stream *s, const char *data, size_t len)
{
    int err = 0;

    for (; len && s->strip && *data == ' '; s->strip--)
        data++, len--;
    if (len)
        s->strip = 0;
    for (size_t i = 0; i < len && !err; i++)
        err = put_byte(s, data[i]);
    return err;
}

/* A token whose marks stand for spaces. */
static int put_marked(struct tokenizer_stream *s, const char *data, size_t len)
{
    const char *mark = s->t->decoder.mark;
    size_t n = strlen(mark), done = 0;
    int err = 0;

    for (size_t i = 0; i + n <= len && !err;) {
        if (memcmp(data + i, mark, n)) {
            i++;
            continue;
        }
        err = put_bytes(s, data + done, i - done);
        if (!err)
            err = put_bytes(s, " ", 1);
        done = i += n;
    }
    return err ? err : put_bytes(s, data + done, len - done);
}

static int put_token(struct tokenizer_stream *s, int32_t id)
{
    const struct vocab *v = &s->t->vocab;

    if (id < 0 || (size_t)id >= v->n) {
        log_error("tokenizer: %d is no token id: the vocabulary has %zu", id, v->n);
        return -EINVAL;
    }
    const struct vocab_token *token = &v->tokens[id];
    const char *text = vocab_text(v, (size_t)id);
    if (token->kind == VOCAB_HOLE || (token->kind == VOCAB_SPECIAL && !s->special))
        return 0;
    int byte = s->t->decoder.bytes ? vocab_byte_token(text, token->len) : -1;
    char c = (char)byte;
    if (byte >= 0)
        return put_bytes(s, &c, 1);
    return s->t->decoder.mark[0] ? put_marked(s, text, token->len)
                                 : put_bytes(s, text, token->len);
}

/* The end of the stream: a character that was not completed. */
static int put_end(struct tokenizer_stream *s)
{
    int err = s->n_part ? put_replacement(s) : 0;
    s->n_part = 0;
    return err;
}

int tokenizer_decode(const struct tokenizer *t, char **text, size_t *len,
                     const int32_t *ids, size_t n, bool special)
{
    struct tokenizer_stream s;
    int err = 0;

    stream_init(&s, t, special);
    for (size_t i = 0; i < n && !err; i++)
        err = put_token(&s, ids[i]);
    if (!err)
        err = put_end(&s);
    if (!err)
        err = text_add(&s.out, "", 1);
    if (err) {
        text_fini(&s.out);
        return err;
    }
    *text = s.out.data;
    *len = s.out.len - 1;
    return 0;
}

int tokenizer_stream_create(struct tokenizer_stream **out, const struct tokenizer *t)
{
    *out = malloc(sizeof(**out));
    if (!*out)
        return file_no_memory("tokenizer");
    stream_init(*out, t, false);
    return 0;
}

void tokenizer_stream_destroy(struct tokenizer_stream *s)
{
    if (!s)
        return;
    text_fini(&s->out);
    free(s);
}

/* What was put since the last call; terminated, so never NULL. */
static int stream_take(struct tokenizer_stream *s, int err, const char **text,
                       size_t *len)
{
    *text = "";
    *len = 0;
    if (!err)
        err = text_add(&s->out, "", 1);
    if (err)
        return err;
    *text = s->out.data;
    *len = s->out.len - 1;
    return 0;
}

int tokenizer_stream_next(struct tokenizer_stream *s, int32_t id, const char **text,
                          size_t *len)
{
    s->out.len = 0;
    return stream_take(s, put_token(s, id), text, len);
}

int tokenizer_stream_flush(struct tokenizer_stream *s, const char **text, size_t *len)
{
    s->out.len = 0;
    return stream_take(s, put_end(s), text, len);
}
