/* Prompts through a loaded model, as often as wanted: what penstock_generate and penstock_bench share. */
#ifndef PENSTOCK_GENERATION_H
#define PENSTOCK_GENERATION_H

#include "runtime/batcher.h"

struct generation {
    struct session session;
    struct batcher batcher;
    const struct penstock_generate *work; /* borrowed */
    int32_t eos[MODEL_MAX_EOS];
    int n_eos;
    size_t prompt_tokens;

    /* Of the last run; seconds on the host's clock. */
    double begin, first_token, prefill_end, end;
    size_t decoded; /* tokens after the first of each sequence */
    int waiting;    /* sequences without a first token */
    bool stopped;   /* by the caller */
};

/* Loads the model for this work. One line for what is wrong. */
int generation_open(struct generation *g, const struct penstock_options *options,
                    const struct penstock_generate *work);
/* Not after -ETIMEDOUT: workers hang and may still use all of this. */
void generation_close(struct generation *g);

/* All prompts from their beginning, and all their new tokens. */
int generation_run(struct generation *g);

#endif
