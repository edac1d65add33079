/* Training a stage: activations kept from the forward to the backward pass, the backward pass whole (B) or split
 * into input gradients (I) and weight gradients (W), gradients and optimizer state. R rows of a micro-batch, C
 * hidden, H, K heads, D head dimension, F intermediate, ld = (H + 2 K) D, T the lane's type. */
#ifndef PENSTOCK_TRAIN_STAGE_H
#define PENSTOCK_TRAIN_STAGE_H

#include "kernels/train.h"
#include "stages/stage.h"

/* What is computed again in the backward pass instead of kept: nothing; norms and the MLP's inside; everything but
 * a layer's input. */
enum recompute { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_LAYER };

/* Activations of one layer and micro-batch. */
struct saved_layer {
    void *x;       /* (R, C) input */
    void *normed1; /* (R, C) */
    void *raw;     /* (R, (H + K) D) q and k before their norms; NULL without QK-norm */
    void *qkv;     /* (R, ld) rotated */
    void *attn;    /* (R, H D) */
    float *lse;    /* (R, H) */
    void *mid;     /* (R, C) x after attention */
    void *normed2; /* (R, C) */
    void *gate_up; /* (R, 2 F) */
    void *act;     /* (R, F) */
};

/* Gradients of one layer's results, which the weight gradients are made of. */
struct saved_grads {
    void *dout;     /* (R, C) of the layer's output */
    void *dgate_up; /* (R, 2 F) */
    void *dmid;     /* (R, C) */
    void *dqkv;     /* (R, ld) */
    /* (2 C + 2 D) the norms' weight gradients, which I makes and W adds; NULL: I adds them. */
    float *norms;
};

/* What one micro-batch keeps from F to B, or to W. */
struct train_slot {
    int32_t *pack;              /* the micro-batch's integers */
    struct saved_layer *layers; /* (n_layers) */
    void *out;                  /* (R, C) input of the head; the last stage only */
};

/* What it keeps from I to W. Where the backward pass is never split, the layers share one set. */
struct train_grad_slot {
    struct saved_grads *grads; /* (n_layers) */
    struct saved_layer
        *layers;     /* (n_layers) what was computed again; NULL pointers: see the slot */
    void *dx;        /* (R, C) gradient of the stage's input */
    float *out_norm; /* (pieces of logit_rows, C) of the head, as saved_grads.norms */
};

struct train_limits {
    int rows;       /* R: most of any micro-batch */
    int segs;       /* sequences of a micro-batch */
    int positions;  /* longest sequence */
    int logit_rows; /* rows whose logits are held at once */
    int slots;      /* micro-batches between F and B or W at once, by the plan */
    int grad_slots; /* between I and W; 0: the plan never splits */
    enum recompute recompute;
    /* A second copy of the weights: without optimizer state, and I leaves all sums of gradients alone: W adds to
     * them, so that it can be done late. */
    bool second;
};

/* A micro-batch of training, on the host. Its pack, in int32: */
struct train_layout {
    size_t tokens, pos, row_seg, seg_row, target, unique_token, unique_start, unique_row,
        total;
};

struct train_batch {
    int rows, segs, max_rows, unique;
    struct train_layout at;
    const int32_t *pack; /* (at.total) page-locked where there is a GPU; borrowed */
    float scale;         /* 1 / real targets of the whole step */
    float *loss;         /* (rows) result of the last stage; borrowed */
    int32_t *bad;        /* (1) result: non-zero if a loss is not finite */
};

struct train_stage {
    struct stage *stage; /* weights and sizes; borrowed */
    const struct kernel_train_ops *ops;
    struct train_limits limits;
    struct stage_bytes
        bytes; /* weights: gradients and optimizer; workspace: activations */

    float *grad; /* (params.elements) */
    float *
        head_grad; /* (V, C) of the table as a head, apart: a tied model's one table has two uses, whose
                           sums must not depend on where the stages are cut. NULL if not tied */
    float *m, *v;  /* (params.elements) optimizer state; NULL in a second copy */
    float *master; /* (params.elements) as m; the weights themselves where T is fp32 */

    struct train_slot *slots;           /* (limits.slots) */
    struct train_grad_slot *grad_slots; /* (max(limits.grad_slots, 1)) */
    struct saved_layer work;            /* one layer, for what is not kept */
    float *cos_sin;                     /* (positions, D / 2, 2) */
    void *dact;                         /* (R, F) */
    void *dattn;                        /* (R, H D) */
    void *dnormed;                      /* (R, C) */
    float *delta;                       /* (R, H) */
    void *normed;                       /* (logit_rows, C), head */
    float *logits;                      /* (logit_rows, V), head */
    void *dlogits;   /* (logit_rows, V), head; logits itself where T is fp32 */
    float *loss;     /* (R), head */
    int32_t *bad;    /* (1), head */
    double *squares; /* (params.n) */
};

struct train_layout train_layout(int rows, int segs);
struct kernel_rows train_rows(const struct train_batch *b, const int32_t *pack);

int train_stage_create(struct train_stage **out, struct stage *stage,
                       const struct train_limits *limits);
void train_stage_destroy(struct train_stage *t);

/* As stage_layout: with arena_dry() it is the prediction. The stage itself is laid out by this too. */
int train_stage_layout(struct train_stage *t, struct arena *arena, enum dtype dtype);

/* After stage_load, on the lane's own thread: RoPE table, master weights in the files' own precision, zero gradients and
 * optimizer state. */
int train_stage_start(struct train_stage *t, const struct model *m);

/* F: the micro-batch through the stage. x (R, C): the previous stage's output, already in slots[slot].layers[0].x
 * (the first stage embeds there); y (R, C): this stage's output, unused by the last stage. */
int train_forward(struct train_stage *t, const struct train_batch *b, int slot, void *y);

/* What train_backward computes. */
enum { TRAIN_INPUT = 1, TRAIN_WEIGHT = 2 };

/* B (both), I (TRAIN_INPUT) or W (TRAIN_WEIGHT, after I with the same slots). dy (R, C): gradient of this stage's
 * output, unused by the last stage, which computes its loss in B or I. dx (R, C): gradient of its input, unused by the
 * first stage. */
int train_backward(struct train_stage *t, const struct train_batch *b, int slot,
                   int grad_slot, const void *dy, void *dx, int what);

/* The parts, each in its file. */
void train_layer_forward(struct train_stage *t, int layer, const struct kernel_rows *rows,
                         struct saved_layer *a, void *y);
void train_layer_again(struct train_stage *t, int layer, const struct kernel_rows *rows,
                       struct saved_layer *a);
void train_layer_input(struct train_stage *t, int layer, const struct kernel_rows *rows,
                       const struct saved_layer *a, const struct saved_grads *g,
                       void *dx);
void train_layer_weight(struct train_stage *t, int layer, int rows,
                        const struct saved_layer *a, const struct saved_grads *g);
/* what: as train_backward. W of a second copy makes the logits again, rather than keep their gradients. */
void train_head(struct train_stage *t, const struct train_batch *b,
                const struct train_slot *slot, const struct train_grad_slot *g, int what);

/* ---- Optimizer (optimizer.c) ------------------------------------------------------------------- */

/* Sums of squares of every parameter's gradient, into squares (params.n) on the host. The tied table counts once, with
 * the sum of both its gradients, on the first stage. */
int train_squares(struct train_stage *t, double *squares);
int train_adamw(struct train_stage *t, const struct kernel_adamw *p);
/* Gradients become 0. */
int train_clear(struct train_stage *t);

/* The gradient of a parameter, or its place on the lane. */
float *train_grad(const struct train_stage *t, enum model_weight weight, size_t layer);

#endif
