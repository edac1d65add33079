/* A micro-batch as stages see it: which rows it has, of which sequences, and what the last stage does
 * with them. Built once on the host; every stage uploads the same integers to its own lane. */
#ifndef PENSTOCK_BATCH_H
#define PENSTOCK_BATCH_H

#include "kernels/kernel.h"

/* What the last stage makes of a micro-batch: nothing (more of the prompt follows), one drawn token for
 * every sample row, or the log-probability of the next token for every row. */
enum batch_goal { BATCH_NONE, BATCH_SAMPLE, BATCH_SCORE };

/* Sizes for which lanes are laid out: the most that any micro-batch of a run has. */
struct batch_limits {
    int rows;       /* R */
    int segs;       /* S */
    int samples;    /* N */
    int table_ld;   /* B: KV blocks of the longest sequence */
    int slots;      /* sequences of the run: one token and one history each */
    int kv_blocks;  /* of all sequences together */
    int logit_rows; /* rows whose logits are held at once */
    bool score;
};

/* Offsets, in int32, of the arrays in a batch's pack. */
struct batch_layout {
    size_t tokens, index, pos, row_seg, seg_row, table, sample_index, sample, target,
        total;
};

struct batch {
    enum batch_goal goal;
    bool decode; /* tokens come from the first stage's slots, not from the pack */
    int rows, segs, samples, max_rows, max_len, table_ld;
    int slot_first, slot_count; /* slots of its sequences, consecutive */
    int group_first,
        group_count; /* groups of sequences that decode together, consecutive */
    struct batch_layout at;
    int32_t *pack;         /* (at.total), page-locked where there is a GPU; borrowed */
    const int32_t *recent; /* (samples, KERNEL_RECENT) history to start from, or NULL */
    struct kernel_sampling sampling;

    /* Results on the host, written by the last stage; complete when its task is. Borrowed. */
    int32_t *drawn; /* (slot_count) tokens of slot_first .. */
    int32_t *bad;   /* (1) non-zero: a row without a finite logit */
    float *logprob; /* (rows) BATCH_SCORE */
    float *logits;  /* (rows, V) BATCH_SCORE, or NULL */
};

/* Offsets for a batch of these sizes; its pack has at.total integers. */
struct batch_layout batch_layout(int rows, int segs, int samples, int table_ld);

/* The pack's kernel_rows, for a copy of the pack at `pack`. */
struct kernel_rows batch_rows(const struct batch *b, const int32_t *pack);

#endif
