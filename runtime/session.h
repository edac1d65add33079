/* A model on its lanes, ready for one piece of work: what penstock_generate and penstock_score share. */
#ifndef PENSTOCK_SESSION_H
#define PENSTOCK_SESSION_H

#include "runtime/infer.h"
#include "runtime/machine.h"
#include "runtime/penstock.h"

/* A sequence of the work and its place in the KV cache. Its slot is its index. */
struct sequence {
    const int32_t *prompt; /* (n_prompt) borrowed */
    size_t n_prompt;
    size_t max_new;  /* tokens it may get */
    int block_first; /* its KV blocks are consecutive from here */
    int group;       /* decodes with the others of it */
    size_t drawn;    /* tokens whose drawing has been submitted */
    bool ended;
    int32_t *tokens; /* (max_new); n of them are there */
    size_t n;
};

struct session_work {
    const struct penstock_prompt *prompts;
    int n_prompts;
    long n_predict; /* -1: to the end of the context */
    bool score;
};

struct session {
    struct machine machine;
    struct sequence *sequences;
    int n_sequences;
    size_t ubatch, context;
    int n_stages, groups;
    struct stage_range *ranges;
    int *stage_lane;
    struct batch_limits limits;
    struct infer *infer;
};

/* Checks the options and the prompts, places and loads the model. One line for what is wrong. */
int session_open(struct session *s, const struct penstock_options *options,
                 const struct session_work *work);
void session_close(struct session *s);

/* Fills stages, link, micro-batches and bubble from the engine. */
int session_report(const struct session *s, struct penstock_report *report);

#endif
