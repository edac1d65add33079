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
    size_t cached;   /* tokens of the prompt that an earlier run left in the KV cache */
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

/* The parts of session_open, for work that is measured in many sizes. Each gives one line for what is wrong, and
 * leaves what there is to session_close, but for session_prepare, which leaves nothing. */

/* Reads the options, the machine and the model's files. */
int session_prepare(struct session *s, const struct penstock_options *options);
/* Starts the lanes. */
int session_start(struct session *s, const struct penstock_options *options);
/* Makes the work's sequences, in the place of others, for s->context; prompts may still be without ids. */
int session_take(struct session *s, const struct penstock_options *options,
                 const struct session_work *work);
/* Cuts the model into stages as suits the work that was taken; nothing is loaded. */
int session_cut(struct session *s, const struct penstock_options *options,
                const struct session_work *work);
/* Whether the stages and work within these limits fit, as infer_fits. */
int session_fits(struct session *s, const struct batch_limits *limits, int groups,
                 struct setup_shortage *why);
/* Loads the stages, for all work within these limits. */
int session_load(struct session *s, const struct penstock_options *options,
                 const struct batch_limits *limits, int groups);

/* Takes them away, so that others can be loaded on the same lanes. Not after -ETIMEDOUT. */
void session_unload(struct session *s);

/* The kind that all links are of; "none" on one lane, "mixed" if they differ. */
const char *session_link(const struct session *s);
/* Idle / (lanes x time) since the engine's times were reset. */
double session_bubble(const struct session *s);

/* Fills stages, link, micro-batches and bubble from the engine. */
int session_report(const struct session *s, struct penstock_report *report);

#endif
