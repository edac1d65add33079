/* Kernels of training: what the backward pass and the optimizer need beyond the forward
 * set of kernel.h, whose conventions hold here too. T is the lane's type; gradients of
 * weights, master weights and optimizer state are fp32 whatever T is. "+=" accumulates in
 * an order that depends on the shapes alone, so that results are the same every time and
 * on any number of threads. */
#ifndef PENSTOCK_TRAIN_H
#define PENSTOCK_TRAIN_H

#include "kernels/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One AdamW step (Loshchilov and Hutter, 2019), weight decay decoupled. */
struct kernel_adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* 1 - beta^t of step t, from 1 */
    float scale;                    /* of the gradients: the clipping factor */
};

struct kernel_train_ops {
    /* RMSNorm of x (R, C) as norm_fwd computes it. dx = or, if add, += the input
     * gradient; dweight (C) += the weight gradient. Either may be NULL. dy, x, dx have
     * row strides lddy, ldx, lddx in elements; groups as in norm_fwd. dx may be dy. */
    void (*norm_bwd)(struct kernel_ctx *ctx, void *dx, float *dweight, const void *dy,
                     const void *x, const void *weight, float eps, bool add, int rows,
                     int groups, int C, size_t lddx, size_t lddy, size_t ldx);

    /* Of y = x w^T + bias: dx (R, K) = or += dy (R, N) w (N, K). */
    void (*gemm_bwd_input)(struct kernel_ctx *ctx, void *dx, const void *dy,
                           const void *w, bool add, int rows, int N, int K);
    /* dw (N, K) += dy^T x; dbias (N) += the sum of dy's rows, unless NULL. */
    void (*gemm_bwd_weight)(struct kernel_ctx *ctx, float *dw, float *dbias,
                            const void *dy, const void *x, int rows, int N, int K);

    /* Rotates back: dx (R, ld), the first `heads` vectors of D elements of every row, in
     * place. */
    void (*rope_bwd)(struct kernel_ctx *ctx, void *dx, const float *cos_sin,
                     const int32_t *pos, int rows, int heads, int D, size_t ld);

    /* Causal attention of whole sequences without a cache: segment s of `rows` is a
     * sequence from its position 0 on. o (R, H * D); lse (R, H) the log of each softmax's
     * denominator, maximum included; qkv (R, ld) rotated. table of rows is not used. */
    void (*attn_train_fwd)(struct kernel_ctx *ctx, void *o, float *lse, const void *qkv,
                           const struct kernel_rows *rows,
                           const struct kernel_attn *attn);
    /* dqkv (R, ld), all of it written, of dout (R, H * D), qkv, o and lse as above; delta
     * (R, H) is work space. The scores are made again tile by tile, never stored as a
     * whole (Dao, 2023). */
    void (*attn_bwd)(struct kernel_ctx *ctx, void *dqkv, float *delta, const void *dout,
                     const void *qkv, const void *o, const float *lse,
                     const struct kernel_rows *rows, const struct kernel_attn *attn);

    /* dgate_up (R, 2 F) of y = silu(gate) * up; may be gate_up itself. */
    void (*swiglu_bwd)(struct kernel_ctx *ctx, void *dgate_up, const void *dy,
                       const void *gate_up, int rows, int F);

    /* dtable (V, C) += dy (R, C) at the rows' tokens. unique tokens token (U); rows
     * start[u] .. start[u + 1] - 1 of row (R) are those of token[u], in ascending order:
     * the host has sorted them. */
    void (*embed_bwd)(struct kernel_ctx *ctx, float *dtable, const int32_t *token,
                      const int32_t *start, const int32_t *row, const void *dy,
                      int unique, int C);

    /* Cross-entropy of logits (R, V), fp32, against target (R): loss[r] = -log
     * softmax(logits[r])[target[r]]; dlogits (R, V) of type T = (softmax - one-hot) *
     * scale. target < 0 (padding): both 0. dlogits may be logits where T is fp32. bad
     * (1): set non-zero if a loss is not finite. */
    void (*cross_entropy)(struct kernel_ctx *ctx, float *loss, void *dlogits,
                          int32_t *bad, float *logits, const int32_t *target, float scale,
                          int rows, int V);

    /* out[0] += sum of g[i]^2 over n elements, in fp64, in an order that depends on n
     * alone. */
    void (*sum_squares)(struct kernel_ctx *ctx, double *out, const float *g, size_t n);

    /* master, m, v (n) are updated by the gradients g (n), which become 0; weight (n) of
     * type T gets the new values, rounded to nearest; weight may be master where T is
     * fp32. */
    void (*adamw)(struct kernel_ctx *ctx, float *master, void *weight, float *m, float *v,
                  float *g, const struct kernel_adamw *p, size_t n);

    /* y (R, n) = x (R, n) of type T, with row strides ldy and ldx in elements. */
    void (*copy_rows)(struct kernel_ctx *ctx, void *y, const void *x, int rows, int n,
                      size_t ldy, size_t ldx);

    /* y += x, (n), fp32. */
    void (*accumulate)(struct kernel_ctx *ctx, float *y, const float *x, size_t n);
};

/* The table of a context's backend. */
const struct kernel_train_ops *kernel_train(const struct kernel_ctx *ctx);

#ifdef __cplusplus
}
#endif

#endif
