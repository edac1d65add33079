/* Builds micro-batches: pieces of prompts, and the rows that decode together. Their memory, page-locked where
 * there is a GPU, is taken once, for two steps in flight. */
#ifndef PENSTOCK_BATCHER_H
#define PENSTOCK_BATCHER_H

#include "runtime/session.h"

/* Micro-batches of a prefill step. */
#define BATCHER_WINDOW 32
#define BATCHER_SETS   2

/* The micro-batches of one step. */
struct batch_set {
    struct batch *batches; /* (cap) */
    struct batch **list;   /* (cap) the same, as the engine takes them */
    int **
        sequence_of; /* (cap)(samples or segs): the sequence of a sample row, of a segment when scoring */
    int n;
};

struct batcher {
    struct session *session; /* borrowed */
    struct kernel_sampling sampling;
    float **logits; /* scoring: (n_sequences)(T, V) or NULL */
    struct batch_set sets[BATCHER_SETS];
    int cap;            /* batches of a set */
    size_t batch_bytes; /* host memory of one batch */
    uint8_t *slab;      /* (BATCHER_SETS, cap, batch_bytes) */
    bool pinned;
    int next_sequence; /* of the prompts still to cut */
    size_t next_token;
};

int batcher_init(struct batcher *b, struct session *s,
                 const struct kernel_sampling *sampling, float **logits);
void batcher_fini(struct batcher *b);

/* Back to the first prompt, behind what of it is cached. */
void batcher_rewind(struct batcher *b);

/* The next pieces of the prompts, at most BATCHER_WINDOW; set->n is 0 when none is left. -ENOMEM. A piece has at most
 * ubatch rows, of as many sequences as fit; of one when scoring. */
int batcher_prefill(struct batcher *b, struct batch_set *set);

/* One row of every sequence that wants another token, a micro-batch a group; set->n 0: none does. */
void batcher_decode(struct batcher *b, struct batch_set *set);

#endif
