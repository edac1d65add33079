/* A vocabulary: token ids and the bytes that they stand for, looked up both ways. */
#ifndef PENSTOCK_VOCAB_H
#define PENSTOCK_VOCAB_H

#include "stages/utf8.h"

enum vocab_kind {
    VOCAB_HOLE, /* an id without a token */
    VOCAB_NORMAL,
    VOCAB_BYTE,    /* SentencePiece's <0xNN>, which stands for that byte */
    VOCAB_ADDED,   /* matched in the text before anything else */
    VOCAB_SPECIAL, /* matched only on request, left out of decoded text */
    VOCAB_UNUSED,
};

struct vocab_token {
    size_t at; /* in the pool */
    size_t len;
    enum vocab_kind kind;
};

struct vocab {
    struct text pool;
    struct vocab_token *tokens; /* (n) by id */
    size_t n;
    uint32_t *slots; /* (n_slots) id + 1, or 0; open addressing, a power of two */
    size_t n_slots;
};

/* For ids below n. -ENOMEM. */
int vocab_init(struct vocab *v, size_t n);
void vocab_fini(struct vocab *v);

/* Gives an id its text, which was not given one before. -ENOMEM. Several ids may have one
 * text: the first is found. */
int vocab_set(struct vocab *v, size_t id, const char *data, size_t len,
              enum vocab_kind kind);

/* The id of a text, or -1. */
int32_t vocab_find(const struct vocab *v, const char *data, size_t len);

static inline const char *vocab_text(const struct vocab *v, size_t id)
{
    return v->pool.data ? v->pool.data + v->tokens[id].at : "";
}

/* A token as byte-level vocabularies write it to the bytes it stands for. false, and
 * nothing added, if a character is none of that alphabet. *err is -ENOMEM or 0. */
bool vocab_from_alphabet(struct text *out, const char *s, size_t len, int *err);

/* The other way: bytes as byte-level vocabularies write them, appended. -ENOMEM. */
int vocab_to_alphabet(struct text *out, const char *data, size_t len);

/* N of SentencePiece's <0xNN>, or -1. */
int vocab_byte_token(const char *s, size_t len);

#endif
