/* Inference on the engine: stages with their KV caches, hidden states from lane to lane, tokens from the last
 * stage back to the first. It knows micro-batches, not prompts. */
#ifndef PENSTOCK_INFER_H
#define PENSTOCK_INFER_H

#include "runtime/engine.h"
#include "runtime/link.h"
#include "runtime/setup.h"
#include "stages/stage.h"

/* Buffers of hidden states per stage: one computed, one sent, one received. */
#define INFER_RING 3

struct infer_config {
    const struct model *model;
    struct place *place;
    struct lane_set *lanes;
    int n_stages;
    const struct stage_range *ranges; /* (n_stages) layers */
    const int *stage_lane;            /* (n_stages) */
    struct batch_limits limits;
    int groups; /* of sequences that decode together */
    enum link_kind link;
    enum engine_order order;
    double deadline; /* seconds, see struct engine */
    void (*progress)(void *user, const char *what, double done); /* or NULL */
    void *user;
};

/* Hidden states on their way through a stage. Stages that follow each other on one lane share a ring. */
struct ring {
    void *x[INFER_RING]; /* (limits.rows, C) of the lane's type */
    struct task_data *data[INFER_RING];
};

struct infer {
    struct engine engine; /* first: a step's engine is this */
    struct infer_config config;
    struct stage **stages; /* (n_stages) */
    struct ring *rings;    /* (n_stages); that of stage s is rings[ring_of[s]] */
    int *ring_of;
    struct link **links; /* (n_stages) into stage s; NULL from the same lane */
    struct link
        *tokens_link;      /* last stage's tokens to the first stage; NULL on one lane */
    struct task_data **kv; /* (n_stages, groups) */
    struct task_data **drawn; /* (groups) tokens at the last stage */
    struct task_data *
        *taken;           /* (groups) tokens at the first stage; the same on one lane */
    size_t *lane_bytes;   /* (lanes) predicted arena of a lane */
    size_t *predicted;    /* (n_stages) bytes by the dry run, before anything is taken */
    size_t *measured;     /* (n_stages) bytes really taken from the arena */
    unsigned long passes; /* micro-batches submitted: the place in a ring */
};

/* Lays stages out, predicts and takes the lanes' memory, binds the workers, makes the links, loads the
 * weights. StarPU runs and the lanes have their workers. One line for what does not fit, by how much. */
int infer_create(struct infer **out, const struct infer_config *config);
void infer_destroy(struct infer *f);

/* Whether infer_create would find the memory for it, by the same prediction. Takes nothing. -ENOMEM, without a line,
 * and *s if not. */
int infer_fits(const struct infer_config *config, struct setup_shortage *s);

/* Submits a plan of forward ops. batches (plan->micro_batches) and what they point to live until step_end. */
int infer_step(struct infer *f, const struct sched_plan *plan, struct batch **batches,
               struct step **out);

/* The engine's submit: an op of a plan as tasks. */
int infer_submit(struct step *s, struct sched_op op);

/* step_wait, and -EDOM after a line if a drawn token's logits were not finite. */
int infer_wait(struct step *s, int micro_batch);

#endif
