/* A stage: a contiguous run of a model's layers with its weights and its part of the KV cache, on one
 * lane. The first stage also embeds tokens; the last one also has the head and draws tokens. A stage is
 * plain C called from a task: it knows neither plan nor link. */
#ifndef PENSTOCK_STAGE_H
#define PENSTOCK_STAGE_H

#include "kernels/arena.h"
#include "stages/batch.h"
#include "stages/model.h"
#include "stages/params.h"

/* Weights and cache of one layer. C hidden, H, K heads, D head dimension, F intermediate, all of the
 * lane's type T. Biases and norms of heads are NULL where the model has none. */
struct layer {
    void *attn_norm;    /* (C) */
    void *qkv;          /* ((H + 2 K) D, C): q, k, v */
    void *qkv_bias;     /* ((H + 2 K) D) */
    void *q_norm;       /* (D) */
    void *k_norm;       /* (D) */
    void *o;            /* (C, H D) */
    void *o_bias;       /* (C) */
    void *mlp_norm;     /* (C) */
    void *gate_up;      /* (2 F, C): gate, up */
    void *gate_up_bias; /* (2 F) */
    void *down;         /* (C, F) */
    void *down_bias;    /* (C) */
    void *k, *v;        /* (kv_blocks, K, KERNEL_KV_BLOCK, D) */
};

/* Memory of a stage by cause, in bytes. */
struct stage_bytes {
    size_t weights, kv, workspace;
};

struct stage {
    const struct model_config *config; /* borrowed */
    struct kernel_ctx *ctx;            /* the lane's, borrowed */
    struct batch_limits limits;
    int index;
    int first, n_layers;
    bool embed, head;
    struct stage_bytes bytes;

    struct params params; /* where its weights lie in `weights` */
    void *weights;        /* (params.elements) */
    struct layer *layers; /* (n_layers) pointers into weights, and the cache */
    void *table;          /* (V, C) embedding, where `embed`, or where `head` and tied */
    void *out_norm;       /* (C), head */
    void *head_w;         /* (V, C), head; the table if tied */
    float *cos_sin;       /* (max_len, D / 2, 2) */

    /* Workspace for one micro-batch of at most limits.rows rows R. */
    int32_t *pack;   /* the batch's integers */
    void *normed;    /* (R, C) */
    void *qkv;       /* (R, (H + 2 K) D) */
    void *attn;      /* (R, H D) */
    void *gate_up;   /* (R, 2 F) */
    void *act;       /* (R, F) */
    void *picked;    /* (max(samples, logit_rows), C), head */
    float *logits;   /* (logit_rows, V), head */
    float *logprob;  /* (R), head, when scoring */
    int32_t *tokens; /* (slots): the newest token of every sequence; embed or head */
    int32_t *recent; /* (slots, KERNEL_RECENT), head */
    int32_t *bad;    /* (1), head */
};

/* Which layers a stage has. */
struct stage_range {
    int first, count;
};

/* Describes stage `index` of `n`. Nothing is allocated on the lane. */
int stage_create(struct stage **out, const struct model_config *config, int index, int n,
                 struct stage_range range, const struct batch_limits *limits);
void stage_destroy(struct stage *s);

/* Lays the stage's memory out in the arena. With an arena of arena_dry() it only counts, for lanes of element type
 * T: that is the prediction. Fills s->bytes. */
int stage_layout(struct stage *s, struct arena *arena, enum dtype dtype);

/* The weights alone: training lays out the rest in its own way. */
int stage_layout_weights(struct stage *s, struct arena *arena, enum dtype dtype);

/* Reads the stage's weights from the model into its lane. Called on the lane's own thread. done counts
 * weight elements, for progress; may be NULL. -EDOM for weights that are not finite. */
int stage_load(struct stage *s, struct kernel_ctx *ctx, const struct model *m,
               size_t *done);

/* Runs a micro-batch through the stage. x (rows, C) of type T: in, the previous stage's hidden states
 * (unused by the first stage, which embeds); out, this stage's. The last stage then meets the batch's
 * goal. CUDA: enqueued only. Returns the kernels' error. */
int stage_forward(struct stage *s, const struct batch *b, void *x);

/* The parts of a forward pass, each in its file. */
void layer_forward(struct stage *s, struct layer *l, const struct kernel_rows *rows,
                   void *x);
void head_forward(struct stage *s, const struct batch *b, const void *x);

#endif
