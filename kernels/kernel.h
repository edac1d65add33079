/* The kernel interface: the context a kernel runs in, and the table of kernels that
 * each backend fills. Kernels return void and set ctx->err (the first -errno stays),
 * which the caller reads once per task with kernel_error(). Weights, activations, keys
 * and values have the type ctx->dtype (written T below); int32 and float arrays are as
 * declared. All pointers are in the backend's memory unless said otherwise. CUDA
 * kernels only enqueue. */
#ifndef PENSTOCK_KERNEL_H
#define PENSTOCK_KERNEL_H

#include "kernels/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens per block of the paged KV cache. A block holds (K heads, KERNEL_KV_BLOCK, D). */
#define KERNEL_KV_BLOCK      64
/* How many of the last tokens of a sequence the repeat penalty looks at. */
#define KERNEL_RECENT        64
/* Largest head dimension and the granularity of it that attention supports. */
#define KERNEL_MAX_HEAD_DIM  256
#define KERNEL_HEAD_DIM_STEP 8

struct kernel_ops;
struct kernel_train_ops;
struct cpu_pool;
struct cuda_state;

struct kernel_ctx {
    const struct kernel_ops *ops;
    enum dtype dtype;        /* T: DTYPE_F32, or DTYPE_BF16 with fp32 sums (CUDA only) */
    int err;                 /* first error as -errno, 0 if none */
    int device;              /* CUDA ordinal, -1 on the CPU */
    struct cpu_pool *pool;   /* CPU: the threads of this lane */
    struct cuda_state *cuda; /* CUDA: stream, cuBLAS handle, workspace */
    void *scratch;           /* CPU: grown by the kernels, owned by the context */
    size_t scratch_bytes;    /* that the backend holds for itself */
};

/* struct kernel_rows and struct kernel_attn lie in host memory and may go after the
 * call; the arrays of kernel_rows are in the backend's memory. */

/* Which rows of a micro-batch belong to which sequence, and where its keys and values
 * lie. A segment is a run of consecutive rows (tokens) of one sequence at consecutive
 * positions. */
struct kernel_rows {
    int rows;               /* R: rows of the micro-batch */
    int segs;               /* S: segments */
    int max_rows;           /* rows of the longest segment */
    int max_len;            /* largest number of visible keys, own rows included */
    int table_ld;           /* B: columns of table */
    const int32_t *pos;     /* (R) position of a row in its sequence, from 0 */
    const int32_t *row_seg; /* (R) segment of a row */
    const int32_t *seg_row; /* (S + 1) first row of a segment */
    const int32_t *table;   /* (S, B) KV block of positions b * KERNEL_KV_BLOCK .. */
};

/* Sizes of attention: H query heads share K key/value heads, each of D elements. A row
 * of qkv is H * D of q, K * D of k, K * D of v: ld = (H + 2 K) D elements. Key block i
 * of a layer starts at k + i * K * KERNEL_KV_BLOCK * D; in it, head h, token t at (h *
 * KERNEL_KV_BLOCK + t) * D. */
struct kernel_attn {
    int heads;    /* H */
    int kv_heads; /* K; H % K == 0 */
    int head_dim; /* D */
    float scale;  /* of q.k, usually 1 / sqrt(D) */
};

/* How a token is drawn from logits, in llama.cpp's order: repeat penalty over the
 * recent tokens, top-k, top-p, min-p, temperature, draw. Values that switch a step
 * off: repeat_penalty 1, top_k 0, top_p 1, min_p 0; temperature 0 is greedy (lowest id
 * wins a tie). Of equal logits the lowest ids pass top-k and top-p. The struct lies in
 * host memory and may go after the call. */
struct kernel_sampling {
    float temperature, top_p, min_p, repeat_penalty;
    int top_k;
    uint64_t seed;
};

/* Where a sampled row belongs. The draw depends on (seed, stream, pos) and the logits
 * alone, so it does not change with the batch, the stage count or the order of work. */
struct kernel_sample_row {
    int32_t slot;   /* index into tokens and recent */
    int32_t pos;    /* of the drawn token: recent[slot][pos % KERNEL_RECENT] */
    int32_t stream; /* number of the sequence in the run, for the random draw */
    int32_t recent; /* how many of the tokens before pos count, <= KERNEL_RECENT */
};

struct kernel_ops {
    const char *name;

    /* What kernel_destroy calls. */
    void (*destroy)(struct kernel_ctx *ctx);

    /* Memory. alloc logs and returns -ENOMEM when it does not fit; upload and download
     * are ordered with the kernels and complete at sync (CPU: at return); host memory
     * must live until then. upload_f32 converts n floats of host memory to T and may
     * return before dst is complete but not before src may be reused. */
    int (*mem_alloc)(struct kernel_ctx *ctx, void **p, size_t bytes);
    void (*mem_free)(struct kernel_ctx *ctx, void *p);
    void (*upload)(struct kernel_ctx *ctx, void *dst, const void *src, size_t bytes);
    void (*upload_f32)(struct kernel_ctx *ctx, void *dst, const float *src, size_t n);
    void (*download)(struct kernel_ctx *ctx, void *dst, const void *src, size_t bytes);
    void (*zero)(struct kernel_ctx *ctx, void *dst, size_t bytes);
    void (*sync)(struct kernel_ctx *ctx);

    /* y[r] = table[tokens[index[r]]], index NULL: tokens[r]. y (R, C), table (V, C) T.
     * Token ids are below V: the caller has checked. */
    void (*embed_fwd)(struct kernel_ctx *ctx, void *y, const void *table,
                      const int32_t *tokens, const int32_t *index, int rows, int C);

    /* RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight. x, y (R, C) with row strides
     * ldx, ldy in elements; weight (C). y may be x. Mean in fp32. With groups > 1 a
     * row holds groups consecutive vectors of C, each normed by itself with the same
     * weight (QK-norm). */
    void (*norm_fwd)(struct kernel_ctx *ctx, void *y, const void *x, const void *weight,
                     float eps, int rows, int groups, int C, size_t ldy, size_t ldx);

    /* y = x w^T + bias, or y += x w^T + bias if add. y (R, N), x (R, K), w (N, K),
     * bias (N) or NULL. */
    void (*gemm_fwd)(struct kernel_ctx *ctx, void *y, const void *x, const void *w,
                     const void *bias, bool add, int rows, int N, int K);

    /* The same without bias, with fp32 results whatever T is: logits (R, V) of x (R,
     * C), w (V, C). */
    void (*head_fwd)(struct kernel_ctx *ctx, float *logits, const void *x, const void *w,
                     int rows, int V, int C);

    /* Rotates the first `heads` vectors of D elements of every row in place, halves
     * paired (i, i + D/2) as Hugging Face does. x (R, ld); cos_sin (positions, D/2, 2)
     * fp32; pos (R). */
    void (*rope_fwd)(struct kernel_ctx *ctx, void *x, const float *cos_sin,
                     const int32_t *pos, int rows, int heads, int D, size_t ld);

    /* Writes k and v of every row of qkv (R, ld) into its block of k, v. */
    void (*kv_store)(struct kernel_ctx *ctx, void *k, void *v, const void *qkv,
                     const struct kernel_rows *rows, const struct kernel_attn *attn);

    /* o (R, H * D): causal attention of every row over its sequence's cached keys 0 ..
     * pos. The rows' own keys are already stored. Softmax in fp32. */
    void (*attn_fwd)(struct kernel_ctx *ctx, void *o, const void *qkv, const void *k,
                     const void *v, const struct kernel_rows *rows,
                     const struct kernel_attn *attn);

    /* y = silu(gate) * up. gate_up (R, 2 F): F of gate, then F of up; y (R, F). */
    void (*swiglu_fwd)(struct kernel_ctx *ctx, void *y, const void *gate_up, int rows,
                       int F);

    /* y[r] = x[index[r]]: y (R, C), x (.., C). */
    void (*gather_fwd)(struct kernel_ctx *ctx, void *y, const void *x,
                       const int32_t *index, int rows, int C);

    /* Draws one token per row: tokens[row[r].slot] and recent[row[r].slot][pos %
     * KERNEL_RECENT]. logits (R, V) fp32 are used as work space and spoilt. Sets
     * ctx->err = -EDOM, later at sync on CUDA, if a row has a logit that is NaN or no
     * finite one. bad (1): device flag, set non-zero then. */
    void (*sample)(struct kernel_ctx *ctx, int32_t *tokens, int32_t *recent, int32_t *bad,
                   float *logits, const struct kernel_sample_row *row,
                   const struct kernel_sampling *p, int rows, int V);

    /* out[r] = log softmax(logits[r])[target[r]]; target < 0: 0. fp32 in, sum in
     * double or compensated. */
    void (*logprob)(struct kernel_ctx *ctx, float *out, const float *logits,
                    const int32_t *target, int rows, int V);

    const struct kernel_train_ops *train; /* of the same backend: kernels/train.h */
};

/* CPU context: n_threads threads (the caller is one of them); cpus (n_threads) OS
 * processor indices to bind to, or NULL. T is fp32. A GEMM is cut into tiles of fixed
 * size, so results do not depend on n_threads. -ENOMEM, -EAGAIN. */
int kernel_cpu_create(struct kernel_ctx **ctx, int n_threads, const int *cpus);

/* CUDA context on a device: stream is a cudaStream_t that the caller owns (a slice's
 * or an ordinary one); sm_count its multiprocessors. -ENODEV in a build without CUDA. */
int kernel_cuda_create(struct kernel_ctx **ctx, int device, void *stream, int sm_count,
                       enum dtype dtype);

void kernel_destroy(struct kernel_ctx *ctx);

/* Temperature, top-p and min-p brought into the range that sampling is defined for; 0
 * for what is no number. Both backends draw with this. */
struct kernel_sampling kernel_sampling_clamp(const struct kernel_sampling *p);

/* The first error since the last call, as -errno, and forgets it. */
int kernel_error(struct kernel_ctx *ctx);
void kernel_fail(struct kernel_ctx *ctx, int err);

#ifdef __cplusplus
}
#endif

#endif
