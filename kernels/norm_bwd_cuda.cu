/* RMSNorm backwards. With r = 1 / sqrt(mean(x^2) + eps): dx = r w dy - x r^3 mean(w dy
 * x), and the weight's gradient is the sum of dy x r over all rows and groups. */
#include "kernels/train_cuda.h"

#define THREADS     256
#define MOST_BLOCKS 512        /* so that there are few partial sums */
#define WARP_MOST   512        /* longer vectors take a block each */
#define MOST_SHARED (32 << 10) /* bytes that every kernel may have */

template <typename T> struct norm_bwd_args {
    T *dx;
    float *partial; /* (blocks, C) or NULL */
    const T *dy, *x, *weight;
    float eps;
    bool add;
    int vectors, groups, C, chunk; /* vectors in all, and of a block */
    size_t lddx, lddy, ldx;
};

/* Over the TEAM threads that share a vector; a block, if it is no warp. */
template <int TEAM> static __device__ __forceinline__ float team_sum(float x)
{
    if (TEAM == WARP)
        return warp_reduce(x, reduce_sum());
    return block_reduce(x, reduce_sum(), 0.0f);
}

/* One vector. Every element is read and written by one thread, so dx may be dy. sums (C)
 * are the team's. */
template <typename T, int TEAM>
static __device__ void norm_bwd_vector(const norm_bwd_args<T> &a, float *sums, int vector,
                                       int lane)
{
    size_t row = vector / a.groups, at = (size_t)(vector % a.groups) * a.C;
    const T *x = a.x + row * a.ldx + at, *dy = a.dy + row * a.lddy + at;
    T *dx = a.dx ? a.dx + row * a.lddx + at : NULL;
    float squares = 0, products = 0;

    for (int c = lane; c < a.C; c += TEAM) {
        float v = to_float(x[c]);
        squares += v * v;
        products += v * to_float(dy[c]) * to_float(a.weight[c]);
    }
    squares = team_sum<TEAM>(squares);
    products = team_sum<TEAM>(products);
    float scale = 1.0f / sqrtf(squares / (float)a.C + a.eps);
    float shift = scale * scale * scale * (products / (float)a.C);
    for (int c = lane; c < a.C; c += TEAM) {
        float v = to_float(x[c]), d = to_float(dy[c]);
        if (a.partial)
            sums[c] += d * v * scale;
        if (dx) {
            float y = d * to_float(a.weight[c]) * scale - v * shift;
            dx[c] = from_float<T>(a.add ? to_float(dx[c]) + y : y);
        }
    }
}

/* A block has `chunk` vectors, and each of its teams every so many of them. */
template <typename T, int TEAM>
static __global__ void __launch_bounds__(THREADS) norm_bwd(norm_bwd_args<T> a)
{
    extern __shared__ float shared[]; /* (teams, C) */
    const int teams = THREADS / TEAM;
    int team = threadIdx.x / TEAM, lane = threadIdx.x % TEAM;
    int first = blockIdx.x * a.chunk, end = min(first + a.chunk, a.vectors);
    float *sums = shared + (size_t)team * a.C;

    for (int c = lane; a.partial && c < a.C; c += TEAM)
        sums[c] = 0;
    for (int i = first + team; i < end; i += teams)
        norm_bwd_vector<T, TEAM>(a, sums, i, lane);
    __syncthreads();
    for (int c = threadIdx.x; a.partial && c < a.C; c += THREADS) {
        float sum = 0;
        for (int i = 0; i < teams; i++)
            sum += shared[(size_t)i * a.C + c];
        a.partial[(size_t)blockIdx.x * a.C + c] = sum;
    }
}

/* The attribute is the device's, not the lane's: it must not be taken back while another
 * lane launches the same kernel. */
template <typename T, int TEAM>
static bool launch(struct kernel_ctx *ctx, const norm_bwd_args<T> &a, int blocks)
{
    size_t shared = a.partial ? (size_t)(THREADS / TEAM) * a.C * sizeof(float) : 0;

    if (shared > MOST_SHARED &&
        !cuda_check(ctx,
                    cudaFuncSetAttribute(norm_bwd<T, TEAM>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)shared),
                    "norm_bwd"))
        return false;
    norm_bwd<T, TEAM><<<blocks, THREADS, shared, ctx->cuda->stream>>>(a);
    cuda_launched(ctx, "norm_bwd");
    return true;
}

/* Sizes of the grid depend on the shape alone, and so does the order of the sums. */
template <typename T>
static void run(struct kernel_ctx *ctx, norm_bwd_args<T> a, float *dweight)
{
    bool warps = a.C <= WARP_MOST;
    int teams = warps ? THREADS / WARP : 1, blocks = (a.vectors + teams - 1) / teams;
    size_t most = CUDA_WORKSPACE_BYTES / sizeof(float) / (size_t)a.C;

    most = most < MOST_BLOCKS ? most : MOST_BLOCKS;
    if ((size_t)blocks > most)
        blocks = (int)most;
    a.chunk = (a.vectors + blocks - 1) / blocks;
    blocks = (a.vectors + a.chunk - 1) / a.chunk;
    a.partial = dweight ? (float *)ctx->cuda->workspace : NULL;
    if (!(warps ? launch<T, WARP>(ctx, a, blocks) : launch<T, THREADS>(ctx, a, blocks)))
        return;
    if (dweight)
        add_columns_cuda(ctx, dweight, (const float *)a.partial, blocks, a.C,
                         (size_t)a.C);
}

template <typename T>
static norm_bwd_args<T> make_args(void *dx, const void *dy, const void *x,
                                  const void *weight)
{
    norm_bwd_args<T> a = {};

    a.dx = (T *)dx;
    a.dy = (const T *)dy;
    a.x = (const T *)x;
    a.weight = (const T *)weight;
    return a;
}

/* The arguments that do not depend on the type. */
template <typename T>
static void run_sizes(struct kernel_ctx *ctx, norm_bwd_args<T> a, float *dweight,
                      float eps, bool add, int rows, int groups, int C, size_t lddx,
                      size_t lddy, size_t ldx)
{
    a.eps = eps;
    a.add = add;
    a.vectors = rows * groups;
    a.groups = groups;
    a.C = C;
    a.lddx = lddx;
    a.lddy = lddy;
    a.ldx = ldx;
    run(ctx, a, dweight);
}

void norm_bwd_cuda(struct kernel_ctx *ctx, void *dx, float *dweight, const void *dy,
                   const void *x, const void *weight, float eps, bool add, int rows,
                   int groups, int C, size_t lddx, size_t lddy, size_t ldx)
{
    cuda_begin(ctx);
    if (rows <= 0)
        return;
    if (cuda_is_bf16(ctx))
        run_sizes(ctx, make_args<__nv_bfloat16>(dx, dy, x, weight), dweight, eps, add,
                  rows, groups, C, lddx, lddy, ldx);
    else
        run_sizes(ctx, make_args<float>(dx, dy, x, weight), dweight, eps, add, rows,
                  groups, C, lddx, lddy, ldx);
}
