/* Byte-pair encoding: merges by rank, over the bytes or the characters of a piece of
 * text. */
#ifndef PENSTOCK_BPE_H
#define PENSTOCK_BPE_H

#include "stages/vocab.h"

struct ids {
    int32_t *data; /* (n), room for cap */
    size_t n, cap;
};

int ids_add(struct ids *ids, int32_t id);

struct bpe_merge {
    int32_t left, right; /* left -1: a free slot */
    int32_t id;
    uint32_t rank;
};

struct bpe {
    bool byte_level;    /* pieces start as bytes, else as characters */
    bool ignore_merges; /* a piece that is a token is that token */
    bool fuse_unknown;  /* a run of unknown characters is one */
    int32_t unknown;    /* -1: unknown characters are left out */
    int32_t bytes[256]; /* tokens of single bytes; -1: none */
    bool fallback;      /* characters without a token become bytes, if each has one */
    struct bpe_merge *merges; /* (n_slots) open addressing, a power of two */
    size_t n_slots, n_merges;
};

/* Room for n merges. -ENOMEM. */
int bpe_init(struct bpe *b, size_t n);
void bpe_fini(struct bpe *b);

/* left and right, side by side, become id; lower ranks first. A pair that is there
 * already is replaced. At most as many as bpe_init had room for. */
void bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t id, uint32_t rank);
/* NULL: the two do not merge. */
const struct bpe_merge *bpe_find(const struct bpe *b, int32_t left, int32_t right);

/* The scratch of one encoder; zeroed before its first use. */
struct bpe_work {
    struct bpe_symbol *symbols;
    size_t n_symbols, symbols_cap;
    struct bpe_pair *heap;
    size_t n_heap, heap_cap;
};

/* Appends the ids of a piece, shorter than 2^31 bytes. Its merges take O(n log n), after
 * Sennrich et al., "Neural machine translation of rare words with subword units": the
 * pair of lowest rank first, and of equal ranks the leftmost. Bytes that are no UTF-8 are
 * encoded one by one. -ENOMEM. */
int bpe_encode(const struct bpe *b, const struct vocab *v, struct bpe_work *w,
               struct ids *out, const char *piece, size_t len);
void bpe_work_fini(struct bpe_work *w);

#endif
