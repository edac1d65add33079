/* Private to kernels/: the CPU twins of training, for the table, and what they share. */
#ifndef PENSTOCK_TRAIN_CPU_H
#define PENSTOCK_TRAIN_CPU_H

#include "kernels/cpu.h"
#include "kernels/train.h"

/* Scratch memory of `bytes` for each thread, as cpu_scratch gives it, and of n floats for
 * all of them together. */
bool train_scratch(struct kernel_ctx *ctx, char **base, size_t *stride, size_t bytes,
                   float **shared, size_t n);

/* y (n) += the sum of the rows of x (rows, n), row stride ld, in the same order on any
 * number of threads. */
void add_columns_cpu(struct kernel_ctx *ctx, float *y, const float *x, int rows, int n,
                     size_t ld);

void norm_bwd_cpu(struct kernel_ctx *ctx, void *dx, float *dweight, const void *dy,
                  const void *x, const void *weight, float eps, bool add, int rows,
                  int groups, int C, size_t lddx, size_t lddy, size_t ldx);
void gemm_bwd_input_cpu(struct kernel_ctx *ctx, void *dx, const void *dy, const void *w,
                        bool add, int rows, int N, int K);
void gemm_bwd_weight_cpu(struct kernel_ctx *ctx, float *dw, float *dbias, const void *dy,
                         const void *x, int rows, int N, int K);
void rope_bwd_cpu(struct kernel_ctx *ctx, void *dx, const float *cos_sin,
                  const int32_t *pos, int rows, int heads, int D, size_t ld);
void attn_train_fwd_cpu(struct kernel_ctx *ctx, void *o, float *lse, const void *qkv,
                        const struct kernel_rows *rows, const struct kernel_attn *attn);
void attn_bwd_cpu(struct kernel_ctx *ctx, void *dqkv, float *delta, const void *dout,
                  const void *qkv, const void *o, const float *lse,
                  const struct kernel_rows *rows, const struct kernel_attn *attn);
void swiglu_bwd_cpu(struct kernel_ctx *ctx, void *dgate_up, const void *dy,
                    const void *gate_up, int rows, int F);
void embed_bwd_cpu(struct kernel_ctx *ctx, float *dtable, const int32_t *token,
                   const int32_t *start, const int32_t *row, const void *dy, int unique,
                   int C);
void cross_entropy_cpu(struct kernel_ctx *ctx, float *loss, void *dlogits, int32_t *bad,
                       float *logits, const int32_t *target, float scale, int rows,
                       int V);
void sum_squares_cpu(struct kernel_ctx *ctx, double *out, const float *g, size_t n);
void adamw_cpu(struct kernel_ctx *ctx, float *master, void *weight, float *m, float *v,
               float *g, const struct kernel_adamw *p, size_t n);
void accumulate_cpu(struct kernel_ctx *ctx, float *y, const float *x, size_t n);

extern const struct kernel_train_ops train_ops_cpu;

#endif
