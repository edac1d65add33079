/* Byte-pair encoding. */
#include "stages/bpe.h"

#include <errno.h>
#include <stdlib.h>

#include "stages/file.h"

/* A piece's symbols, linked so that a merge takes constant time. */
struct bpe_symbol {
    int32_t id, prev, next; /* -1: none; id -1: merged into its neighbour */
};

/* A merge that may be done at symbol `at`, unless its two symbols have changed
 * meanwhile. */
struct bpe_pair {
    uint32_t rank;
    int32_t at, left, right, id;
};

int ids_add(struct ids *ids, int32_t id)
{
    int err = text_room((void **)&ids->data, &ids->cap, ids->n, 1, sizeof(*ids->data));
    if (!err)
        ids->data[ids->n++] = id;
    return err;
}

int bpe_init(struct bpe *b, size_t n)
{
    size_t slots = 16;

    *b = (struct bpe){.unknown = -1};
    for (size_t i = 0; i < ARRAY_LEN(b->bytes); i++)
        b->bytes[i] = -1;
    while (slots / 2 < n)
        slots *= 2;
    b->merges = calloc(slots, sizeof(*b->merges));
    if (!b->merges)
        return file_no_memory("tokenizer");
    b->n_slots = slots;
    for (size_t i = 0; i < slots; i++)
        b->merges[i].left = -1;
    return 0;
}

void bpe_fini(struct bpe *b)
{
    free(b->merges);
    b->merges = NULL;
}

static struct bpe_merge *slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    size_t i = (size_t)(h >> 32) & (b->n_slots - 1);

    for (;; i = (i + 1) & (b->n_slots - 1)) {
        struct bpe_merge *m = &b->merges[i];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

void bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t id, uint32_t rank)
{
    struct bpe_merge *m = slot(b, left, right);

    b->n_merges += m->left < 0;
    *m = (struct bpe_merge){.left = left, .right = right, .id = id, .rank = rank};
}

const struct bpe_merge *bpe_find(const struct bpe *b, int32_t left, int32_t right)
{
    const struct bpe_merge *m = slot(b, left, right);
    return m->left < 0 ? NULL : m;
}

static bool before(const struct bpe_pair *a, const struct bpe_pair *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static int heap_push(struct bpe_work *w, struct bpe_pair pair)
{
    int err = text_room((void **)&w->heap, &w->heap_cap, w->n_heap, 1, sizeof(*w->heap));
    if (err)
        return err;
    size_t i = w->n_heap++;
    for (; i && before(&pair, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = pair;
    return 0;
}

static struct bpe_pair heap_pop(struct bpe_work *w)
{
    struct bpe_pair top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < w->n_heap) {
        if (child + 1 < w->n_heap && before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return top;
}

/* Whether text can become this token by itself. */
static bool is_plain(const struct vocab *v, int32_t id)
{
    return v->tokens[id].kind == VOCAB_NORMAL || v->tokens[id].kind == VOCAB_ADDED;
}

static int symbol_add(struct bpe_work *w, int32_t id)
{
    int err = text_room((void **)&w->symbols, &w->symbols_cap, w->n_symbols, 1,
                        sizeof(*w->symbols));
    if (err)
        return err;
    int32_t at = (int32_t)w->n_symbols++;
    w->symbols[at] = (struct bpe_symbol){.id = id, .prev = at - 1, .next = at + 1};
    return 0;
}

/* Symbols of a character that has no token: its bytes, or the unknown token. */
static int unknown_add(const struct bpe *b, struct bpe_work *w, const char *c, size_t n,
                       bool *fuse)
{
    bool bytes = b->fallback;
    int err = 0;

    for (size_t i = 0; i < n && bytes; i++)
        bytes = b->bytes[(uint8_t)c[i]] >= 0;
    if (!bytes) {
        bool again = *fuse;
        *fuse = b->fuse_unknown;
        return b->unknown < 0 || again ? 0 : symbol_add(w, b->unknown);
    }
    for (size_t i = 0; i < n && !err; i++)
        err = symbol_add(w, b->bytes[(uint8_t)c[i]]);
    return err;
}

static int start_bytes(const struct bpe *b, struct bpe_work *w, const char *piece,
                       size_t len)
{
    bool fuse = false;
    int err = 0;

    for (size_t i = 0; i < len && !err; i++) {
        int32_t id = b->bytes[(uint8_t)piece[i]];
        err = id >= 0 ? symbol_add(w, id) : unknown_add(b, w, piece + i, 1, &fuse);
        fuse = fuse && id < 0;
    }
    return err;
}

static int start_chars(const struct bpe *b, const struct vocab *v, struct bpe_work *w,
                       const char *piece, size_t len)
{
    bool fuse = false;
    uint32_t code;
    int err = 0;

    for (size_t at = 0, n; at < len && !err; at += n) {
        n = utf8_next(&code, piece + at, len - at);
        int32_t id = n ? vocab_find(v, piece + at, n) : -1;
        n = n ? n : 1;
        id = id >= 0 && is_plain(v, id) ? id : -1;
        err = id >= 0 ? symbol_add(w, id) : unknown_add(b, w, piece + at, n, &fuse);
        fuse = fuse && id < 0;
    }
    return err;
}

/* Queues the merge of the symbols at `at` and after it, if there is one. */
static int pair_add(const struct bpe *b, struct bpe_work *w, int32_t at)
{
    int32_t next = at < 0 ? -1 : w->symbols[at].next;
    if (next < 0)
        return 0;
    const struct bpe_merge *m = bpe_find(b, w->symbols[at].id, w->symbols[next].id);
    if (!m)
        return 0;
    return heap_push(w, (struct bpe_pair){m->rank, at, m->left, m->right, m->id});
}

static int merge(const struct bpe *b, struct bpe_work *w)
{
    int err = 0;

    w->n_heap = 0;
    for (size_t i = 0; i + 1 < w->n_symbols && !err; i++)
        err = pair_add(b, w, (int32_t)i);
    while (!err && w->n_heap) {
        struct bpe_pair p = heap_pop(w);
        struct bpe_symbol *left = &w->symbols[p.at];
        struct bpe_symbol *right = left->next < 0 ? NULL : &w->symbols[left->next];
        if (!right || left->id != p.left || right->id != p.right)
            continue;
        left->id = p.id;
        right->id = -1;
        left->next = right->next;
        if (left->next >= 0)
            w->symbols[left->next].prev = p.at;
        err = pair_add(b, w, left->prev);
        if (!err)
            err = pair_add(b, w, p.at);
    }
    return err;
}

/* The token that a piece is as a whole, or -1. */
static int32_t whole(const struct bpe *b, const struct vocab *v, const char *piece,
                     size_t len)
{
    int32_t id = b->ignore_merges ? vocab_find(v, piece, len) : -1;
    return id >= 0 && is_plain(v, id) ? id : -1;
}

int bpe_encode(const struct bpe *b, const struct vocab *v, struct bpe_work *w,
               struct ids *out, const char *piece, size_t len)
{
    int32_t id = whole(b, v, piece, len);
    if (id >= 0)
        return ids_add(out, id);
    w->n_symbols = 0;
    int err =
        b->byte_level ? start_bytes(b, w, piece, len) : start_chars(b, v, w, piece, len);
    if (err || !w->n_symbols)
        return err;
    w->symbols[w->n_symbols - 1].next = -1;
    err = merge(b, w);
    for (int32_t i = 0; i >= 0 && !err; i = w->symbols[i].next)
        err = ids_add(out, w->symbols[i].id);
    return err;
}

void bpe_work_fini(struct bpe_work *w)
{
    free(w->symbols);
    free(w->heap);
    *w = (struct bpe_work){0};
}
