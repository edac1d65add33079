/* A vocabulary: token ids and the bytes that they stand for. */
#include "stages/vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"

int vocab_init(struct vocab *v, size_t n)
{
    size_t slots = 16;

    *v = (struct vocab){.n = n};
    while (slots / 2 < n)
        slots *= 2;
    v->tokens = calloc(n + 1, sizeof(*v->tokens));
    v->slots = calloc(slots, sizeof(*v->slots));
    v->n_slots = slots;
    if (v->tokens && v->slots)
        return 0;
    vocab_fini(v);
    return file_no_memory("tokenizer");
}

void vocab_fini(struct vocab *v)
{
    text_fini(&v->pool);
    free(v->tokens);
    free(v->slots);
    *v = (struct vocab){0};
}

/* FNV-1a over the bytes, its high bits folded in. */
static size_t hash(const char *data, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)data[i]) * 0x100000001b3u;
    return (size_t)(h ^ h >> 29);
}

/* The slot of a text: its own, or the free one where it would go. */
static uint32_t *slot(const struct vocab *v, const char *data, size_t len)
{
    size_t i = hash(data, len) & (v->n_slots - 1);

    for (;; i = (i + 1) & (v->n_slots - 1)) {
        uint32_t *s = &v->slots[i];
        if (!*s)
            return s;
        const struct vocab_token *t = &v->tokens[*s - 1];
        if (t->len == len && (!len || !memcmp(v->pool.data + t->at, data, len)))
            return s;
    }
}

int vocab_set(struct vocab *v, size_t id, const char *data, size_t len,
              enum vocab_kind kind)
{
    struct vocab_token *t = &v->tokens[id];
    size_t at = v->pool.len;

    int err = text_add(&v->pool, data, len);
    if (err)
        return err;
    *t = (struct vocab_token){.at = at, .len = len, .kind = kind};
    uint32_t *s = slot(v, v->pool.data + at, len);
    if (!*s)
        *s = (uint32_t)id + 1;
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *data, size_t len)
{
    return v->n ? (int32_t)*slot(v, data, len) - 1 : -1;
}

/* Byte-level BPE writes a byte as the character of the same number where that is
 * printable, and the others, in their order, as U+0100, U+0101, ... */
static bool is_plain(uint32_t byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) ||
           (byte >= 0xae && byte <= 0xff);
}

static int alphabet_byte(uint32_t code)
{
    if (code < 0x100)
        return is_plain(code) ? (int)code : -1;
    uint32_t rank = code - 0x100;
    if (rank < 33)
        return (int)rank; /* controls and the space */
    if (rank < 67)
        return (int)(0x7f + rank - 33); /* delete .. no-break space */
    return rank == 67 ? 0xad : -1;
}

bool vocab_from_alphabet(struct text *out, const char *s, size_t len, int *err)
{
    size_t before = out->len;
    uint32_t code;

    *err = 0;
    for (size_t at = 0, n; at < len; at += n) {
        n = utf8_next(&code, s + at, len - at);
        int byte = n ? alphabet_byte(code) : -1;
        char c = (char)byte;
        if (byte >= 0)
            *err = text_add(out, &c, 1);
        if (byte < 0 || *err) {
            out->len = before;
            return false;
        }
    }
    return true;
}

static uint32_t alphabet_code(uint8_t byte)
{
    if (is_plain(byte))
        return byte;
    if (byte <= ' ')
        return 0x100u + byte;
    return byte == 0xad ? 0x100 + 67 : 0x100 + 33 + (byte - 0x7fu);
}

int vocab_to_alphabet(struct text *out, const char *data, size_t len)
{
    char code[4];
    int err = 0;

    for (size_t i = 0; i < len && !err; i++)
        err = text_add(out, code, utf8_put(code, alphabet_code((uint8_t)data[i])));
    return err;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int vocab_byte_token(const char *s, size_t len)
{
    if (len != 6 || memcmp(s, "<0x", 3) || s[5] != '>')
        return -1;
    int high = hex_digit(s[3]), low = hex_digit(s[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
