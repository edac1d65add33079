/* Private to kernels/: what the CPU twins share, and the twins themselves for the
 * table. */
#ifndef PENSTOCK_CPU_H
#define PENSTOCK_CPU_H

#include "kernels/kernel.h"
#include "kernels/pool.h"
#include "kernels/vec.h"

/* A context and what only the CPU needs beside it. */
struct cpu_ctx {
    struct kernel_ctx base; /* first: kernels get a pointer to it */
    const struct vec_ops *vec;
};

/* The inner loops of a CPU context. */
const struct vec_ops *cpu_vec(const struct kernel_ctx *ctx);

/* bytes of scratch memory for every thread: thread i has those at *base + i * *stride,
 * aligned to 64. False, and ctx->err is set, if there is no memory. Spoilt by the next
 * call. */
bool cpu_scratch(struct kernel_ctx *ctx, char **base, size_t *stride, size_t bytes);

/* Runs fn over the tiles on the threads of the lane. */
void cpu_run(struct kernel_ctx *ctx, pool_fn *fn, void *arg, int tiles);

/* How many pieces of `size` make n, and how long piece i is. */
int cpu_pieces(int n, int size);
int cpu_piece(int n, int size, int i);

/* How many rows make a tile of kernels that do little per row: about cost elements a
 * tile. */
int cpu_row_tile(size_t elements_per_row);

void embed_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *table,
                   const int32_t *tokens, const int32_t *index, int rows, int C);
void gather_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *x, const int32_t *index,
                    int rows, int C);
void norm_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *x, const void *weight,
                  float eps, int rows, int groups, int C, size_t ldy, size_t ldx);
void gemm_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *x, const void *w,
                  const void *bias, bool add, int rows, int N, int K);
void head_fwd_cpu(struct kernel_ctx *ctx, float *logits, const void *x, const void *w,
                  int rows, int V, int C);
void rope_fwd_cpu(struct kernel_ctx *ctx, void *x, const float *cos_sin,
                  const int32_t *pos, int rows, int heads, int D, size_t ld);
void kv_store_cpu(struct kernel_ctx *ctx, void *k, void *v, const void *qkv,
                  const struct kernel_rows *rows, const struct kernel_attn *attn);
void attn_fwd_cpu(struct kernel_ctx *ctx, void *o, const void *qkv, const void *k,
                  const void *v, const struct kernel_rows *rows,
                  const struct kernel_attn *attn);
void swiglu_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *gate_up, int rows,
                    int F);
void sample_cpu(struct kernel_ctx *ctx, int32_t *tokens, int32_t *recent, int32_t *bad,
                float *logits, const struct kernel_sample_row *row,
                const struct kernel_sampling *p, int rows, int V);
void logprob_cpu(struct kernel_ctx *ctx, float *out, const float *logits,
                 const int32_t *target, int rows, int V);

#endif
