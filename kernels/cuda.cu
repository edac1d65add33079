/* The CUDA backend: its context, memory and table of kernels. */
#include "kernels/train_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES  ((size_t)8 << 20)
#define OLDEST_MAJOR 8 /* compute capability: bf16 matrix instructions */

static int errno_of(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? -ENOMEM : -EIO;
}

bool cuda_check(struct kernel_ctx *ctx, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return true;
    if (!ctx->err)
        log_error("lane cuda:%d: %s failed: %s", ctx->device, what,
                  cudaGetErrorString(e));
    cudaGetLastError();
    kernel_fail(ctx, errno_of(e));
    return false;
}

void cuda_launched(struct kernel_ctx *ctx, const char *kernel)
{
    cuda_check(ctx, cudaGetLastError(), kernel);
}

cudaStream_t cuda_begin(struct kernel_ctx *ctx)
{
    cuda_check(ctx, cudaSetDevice(ctx->device), "choosing the device");
    return ctx->cuda->stream;
}

static int mem_alloc(struct kernel_ctx *ctx, void **p, size_t bytes)
{
    cudaError_t e;

    *p = NULL;
    cuda_begin(ctx);
    e = cudaMalloc(p, bytes ? bytes : 1);
    if (e == cudaSuccess)
        return 0;
    *p = NULL;
    cudaGetLastError();
    log_error(
        "lane cuda:%d: no memory for %zu bytes: %s; use more lanes or a smaller context",
        ctx->device, bytes, cudaGetErrorString(e));
    return errno_of(e);
}

static void mem_free(struct kernel_ctx *ctx, void *p)
{
    cuda_begin(ctx);
    cuda_check(ctx, cudaFree(p), "freeing memory");
}

static void upload(struct kernel_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (bytes)
        cuda_check(ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, stream),
                   "copying to the device");
}

static void download(struct kernel_ctx *ctx, void *dst, const void *src, size_t bytes)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (bytes)
        cuda_check(ctx, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, stream),
                   "copying from the device");
}

static void zero(struct kernel_ctx *ctx, void *dst, size_t bytes)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (bytes)
        cuda_check(ctx, cudaMemsetAsync(dst, 0, bytes, stream), "clearing memory");
}

/* Rounds to nearest, ties to even; a NaN stays one. */
static uint16_t bf16_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* Waits until the buffer is free; makes it at the first use. */
static bool stage_ready(struct kernel_ctx *ctx, cuda_stage *stage)
{
    if (stage->buffer)
        return cuda_check(ctx, cudaEventSynchronize(stage->done), "copying weights");
    if (!cuda_check(ctx, cudaEventCreateWithFlags(&stage->done, cudaEventDisableTiming),
                    "making an event"))
        return false;
    if (cuda_check(ctx, cudaHostAlloc(&stage->buffer, STAGE_BYTES, cudaHostAllocDefault),
                   "allocating page-locked memory"))
        return true;
    cudaEventDestroy(stage->done);
    stage->buffer = NULL;
    return false;
}

/* One piece through a page-locked buffer, which is free again when its event has
 * passed. */
static void upload_piece(struct kernel_ctx *ctx, char *dst, const float *src, size_t n)
{
    cudaStream_t stream = cuda_begin(ctx);
    cuda_stage *stage = &ctx->cuda->stage[ctx->cuda->next_stage];
    bool bf16 = cuda_is_bf16(ctx);

    if (!stage_ready(ctx, stage))
        return;
    ctx->cuda->next_stage ^= 1;
    if (bf16) {
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)stage->buffer)[i] = bf16_of(src[i]);
    } else {
        memcpy(stage->buffer, src, n * sizeof(float));
    }
    if (cuda_check(ctx,
                   cudaMemcpyAsync(dst, stage->buffer, n * (bf16 ? 2 : 4),
                                   cudaMemcpyHostToDevice, stream),
                   "copying weights"))
        cuda_check(ctx, cudaEventRecord(stage->done, stream), "copying weights");
}

static void upload_f32(struct kernel_ctx *ctx, void *dst, const float *src, size_t n)
{
    size_t piece = STAGE_BYTES / sizeof(float), bytes = cuda_is_bf16(ctx) ? 2 : 4;

    for (size_t i = 0; i < n && !ctx->err; i += piece)
        upload_piece(ctx, (char *)dst + i * bytes, src + i,
                     n - i < piece ? n - i : piece);
}

static void sync(struct kernel_ctx *ctx)
{
    cudaStream_t stream = cuda_begin(ctx);

    if (!cuda_check(ctx, cudaStreamSynchronize(stream), "a kernel"))
        return;
    if (*(volatile int32_t *)ctx->cuda->bad) {
        *ctx->cuda->bad = 0;
        log_error("lane cuda:%d: logits are not finite: the weights are damaged, or too "
                  "large for %s",
                  ctx->device, dtype_name(ctx->dtype));
        kernel_fail(ctx, -EDOM);
    }
}

static void destroy(struct kernel_ctx *ctx)
{
    cuda_state *state = ctx->cuda;

    cuda_begin(ctx);
    cudaStreamSynchronize(state->stream);
    for (cuda_stage &stage : state->stage) {
        if (!stage.buffer)
            continue;
        cudaEventDestroy(stage.done);
        cudaFreeHost(stage.buffer);
    }
    if (state->blas)
        cublasDestroy(state->blas);
    if (state->workspace)
        cudaFree(state->workspace);
    if (state->bad)
        cudaFreeHost(state->bad);
    cudaGetLastError();
    free(state);
    free(ctx);
}

static kernel_ops make_ops(void)
{
    kernel_ops ops = {};

    ops.name = "cuda";
    ops.destroy = destroy;
    ops.mem_alloc = mem_alloc;
    ops.mem_free = mem_free;
    ops.upload = upload;
    ops.upload_f32 = upload_f32;
    ops.download = download;
    ops.zero = zero;
    ops.sync = sync;
    ops.embed_fwd = embed_fwd_cuda;
    ops.norm_fwd = norm_fwd_cuda;
    ops.gemm_fwd = gemm_fwd_cuda;
    ops.head_fwd = head_fwd_cuda;
    ops.rope_fwd = rope_fwd_cuda;
    ops.kv_store = kv_store_cuda;
    ops.attn_fwd = attn_fwd_cuda;
    ops.swiglu_fwd = swiglu_fwd_cuda;
    ops.gather_fwd = gather_fwd_cuda;
    ops.sample = sample_cuda;
    ops.logprob = logprob_cuda;
    ops.train = &train_ops_cuda;
    return ops;
}

static const kernel_ops cuda_ops = make_ops();

/* cuBLAS gets memory of its own, so that it never allocates while the pipeline runs
 * and its results do not depend on what else runs. */
static int start_blas(struct kernel_ctx *ctx)
{
    cuda_state *state = ctx->cuda;
    cublasStatus_t status = cublasCreate(&state->blas);

    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetStream(state->blas, state->stream);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetWorkspace(state->blas, state->workspace, CUDA_WORKSPACE_BYTES);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = cublasSetSmCountTarget(state->blas, state->sm_count);
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    log_error("lane cuda:%d: cuBLAS does not start: %s", ctx->device,
              cublasGetStatusString(status));
    return status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO;
}

static int start(struct kernel_ctx *ctx)
{
    cuda_state *state = ctx->cuda;
    int major = 0;

    cuda_begin(ctx);
    cuda_check(
        ctx,
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ctx->device),
        "asking the device");
    if (!ctx->err && major < OLDEST_MAJOR) {
        log_error("lane cuda:%d: compute capability %d.x is too old, %d.0 is needed",
                  ctx->device, major, OLDEST_MAJOR);
        return -ENODEV;
    }
    if (cuda_check(ctx, cudaMalloc(&state->workspace, CUDA_WORKSPACE_BYTES),
                   "making a work space") &&
        cuda_check(
            ctx,
            cudaHostAlloc((void **)&state->bad, sizeof(int32_t), cudaHostAllocMapped),
            "making a flag")) {
        *state->bad = 0;
        ctx->scratch_bytes = CUDA_WORKSPACE_BYTES;
        cuda_check(ctx,
                   cudaHostGetDevicePointer((void **)&state->bad_device, state->bad, 0),
                   "making a flag");
    }
    return ctx->err ? kernel_error(ctx) : start_blas(ctx);
}

extern "C" int kernel_cuda_create(struct kernel_ctx **out, int device, void *stream,
                                  int sm_count, enum dtype dtype)
{
    kernel_ctx *ctx;
    int err;

    *out = NULL;
    if (dtype != DTYPE_BF16 && dtype != DTYPE_F32) {
        log_error("lane cuda:%d: computes in BF16 or F32, not in %s", device,
                  dtype_name(dtype));
        return -EINVAL;
    }
    ctx = (kernel_ctx *)calloc(1, sizeof(*ctx));
    if (!ctx || !(ctx->cuda = (cuda_state *)calloc(1, sizeof(*ctx->cuda)))) {
        free(ctx);
        return -ENOMEM;
    }
    ctx->ops = &cuda_ops;
    ctx->dtype = dtype;
    ctx->device = device;
    ctx->cuda->stream = (cudaStream_t)stream;
    ctx->cuda->sm_count = sm_count;
    err = start(ctx);
    if (err) {
        destroy(ctx);
        return err;
    }
    *out = ctx;
    return 0;
}
