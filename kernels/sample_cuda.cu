/* Draws a token from logits: repeat penalty, top-k, top-p, min-p, temperature. The
 * same integers as sample_cpu.c, so the same token for the same logits. */
#include "kernels/cuda.h"
#include "kernels/exp.h"

#include <math.h>
#include <math_constants.h>

#define SAMPLE_FN static __device__ __forceinline__
#include "kernels/sample.h"

#define THREADS 1024
#define WARPS   (THREADS / WARP)
#define BINS    256

struct sample_args {
    int32_t *tokens, *recent, *bad, *bad_host;
    float *logits; /* (rows, V) */
    const struct kernel_sample_row *row;
    int V, top_k;
    float top_p, min_log_p,
        repeat_penalty;        /* min_log_p: log of min-p, -inf if it is off */
    float inverse_temperature; /* 0: greedy */
    uint64_t seed;
};

/* One row's candidates, the same in every thread. */
struct candidates {
    const float *x; /* (V) */
    int V;
    float max;
    sample_cut cut;
};

/* exp((x - max) * scale) * MASS_ONE, truncated, with the roundings of vec_body.h. */
static __device__ __forceinline__ int64_t mass_of(float x, float max, float scale)
{
    float a = __fmul_rn(__fsub_rn(x, max), scale);

    a = a < EXP_MIN ? EXP_MIN : a;
    a = a > EXP_MAX ? EXP_MAX : a;
    float t = __fmaf_rn(a, EXP_LOG2E, EXP_ROUND);
    float n = __fsub_rn(t, EXP_ROUND);
    float r = __fmaf_rn(n, -EXP_LN2_HIGH, a);
    r = __fmaf_rn(n, -EXP_LN2_LOW, r);
    float q = __fmaf_rn(EXP_C6, r, EXP_C5);
    q = __fmaf_rn(q, r, EXP_C4);
    q = __fmaf_rn(q, r, EXP_C3);
    q = __fmaf_rn(q, r, EXP_C2);
    float e = __fmaf_rn(q, r, 1.0f);
    e = __fmaf_rn(e, r, 1.0f);
    e = __fmul_rn(e, __int_as_float((int)((unsigned)__float_as_int(t) + 127u) << 23));
    return __float2ll_rz(__fmul_rn(e, MASS_ONE));
}

static __device__ __forceinline__ float float_of(uint32_t key)
{
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* Every token among the recent ones is penalised once. Thread i looks i + 1 tokens
 * back. */
static __device__ void penalise(const sample_args &a, float *x,
                                const kernel_sample_row &row)
{
    const int32_t *ring = a.recent + (size_t)row.slot * KERNEL_RECENT;
    int back = threadIdx.x + 1, count = min(min(row.recent, row.pos), KERNEL_RECENT);

    if (a.repeat_penalty != 1.0f && back <= count) {
        int32_t token = ring[(row.pos - back) % KERNEL_RECENT];
        bool first = token >= 0 && token < a.V;
        for (int i = 1; i < back && first; i++)
            first = ring[(row.pos - i) % KERNEL_RECENT] != token;
        if (first)
            x[token] = sample_penalise(x[token], a.repeat_penalty);
    }
    __syncthreads();
}

/* Largest logit; false if one is no number or none is finite. */
static __device__ bool find_max(candidates *c)
{
    float max = -CUDART_INF_F;
    int nan = 0;

    for (int i = threadIdx.x; i < c->V; i += THREADS) {
        max = c->x[i] > max ? c->x[i] : max;
        nan |= isnan(c->x[i]);
    }
    c->max = block_reduce(max, reduce_max(), -CUDART_INF_F);
    return !block_reduce(nan, reduce_max(), 0) && !isinf(c->max);
}

static __device__ int32_t first_of_max(const candidates &c)
{
    int first = c.V;

    for (int i = threadIdx.x; i < c.V; i += THREADS) {
        if (c.x[i] == c.max) {
            first = i;
            break;
        }
    }
    return block_reduce(first, reduce_min(), c.V);
}

/* Weight of a candidate: its mass, or 1 when candidates are counted. */
static __device__ __forceinline__ int64_t weight_of(const candidates &c, float x,
                                                    bool by_mass)
{
    return by_mass ? mass_of(x, c.max, 1.0f) : 1;
}

/* The highest bin at which the sum from the top reaches `want`, and what lies above
 * it. By warp 0: lane i sums bins 255 - 8 i and the seven below. */
static __device__ void find_bin(const unsigned long long *bin, int64_t want, int *found,
                                int64_t *found_above)
{
    int lane = threadIdx.x, top = BINS - 1 - 8 * lane;
    int64_t mine = 0, upto;

    for (int i = 0; i < 8; i++)
        mine += (int64_t)bin[top - i];
    upto = mine;
    for (int far = 1; far < WARP; far *= 2) {
        int64_t before = __shfl_up_sync(ALL_LANES, (long long)upto, far);
        if (lane >= far)
            upto += before;
    }
    int64_t above = upto - mine;
    if (above < want && upto >= want) {
        while (above + (int64_t)bin[top] < want)
            above += (int64_t)bin[top--];
        *found = top;
        *found_above = above;
    }
}

/* Cuts to the shortest prefix of the candidates left that has `want` in count or in
 * mass, eight bits of the key at a time. Integer sums have no order, so atomics do no
 * harm. */
static __device__ void cut_at(candidates *c, int64_t want, bool by_mass)
{
    __shared__ unsigned long long bin[BINS];
    __shared__ int digit;
    __shared__ int64_t shared_above;
    uint32_t prefix = 0, mask = 0;
    int64_t above = 0, one;

    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < BINS; i += THREADS)
            bin[i] = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < c->V; i += THREADS) {
            uint32_t key = sample_key(c->x[i]);
            if ((key & mask) == prefix && key >= c->cut.key)
                atomicAdd(&bin[key >> shift & 255],
                          (unsigned long long)weight_of(*c, c->x[i], by_mass));
        }
        __syncthreads();
        if (threadIdx.x < WARP)
            find_bin(bin, want - above, &digit, &shared_above);
        __syncthreads();
        above += shared_above;
        prefix |= (uint32_t)digit << shift;
        mask |= 255u << shift;
        __syncthreads();
    }
    one = weight_of(*c, float_of(prefix), by_mass);
    c->cut.key = prefix;
    c->cut.ties = (want - above + one - 1) / one;
}

/* A warp's share of the ids, whole rounds of WARP. */
static __device__ void share_of(int V, int warp, int *begin, int *end)
{
    int each = (V + THREADS - 1) / THREADS * WARP;

    *begin = min(warp * each, V);
    *end = min(*begin + each, V);
}

/* Before each warp's share: how many ties come earlier (WARPS). */
static __device__ void count_ties(const candidates &c, int *before)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, begin, end, n = 0;

    share_of(c.V, warp, &begin, &end);
    for (int i = begin + lane; i < end; i += WARP)
        n += sample_key(c.x[i]) == c.cut.key;
    n = warp_reduce(n, reduce_sum());
    __syncthreads();
    if (lane == 0)
        before[warp] = n;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 0, sum = 0; w < WARPS; w++) {
            int ties = before[w];
            before[w] = sum;
            sum += ties;
        }
    }
    __syncthreads();
}

/* The mass of id i if it is among the candidates left, else 0. i may be past the end.
 * All lanes of a warp call it with ids in a row; *ties counts the ties before. */
static __device__ __forceinline__ int64_t mass_left(const candidates &c, int i, int end,
                                                    float scale, int64_t *ties)
{
    uint32_t key = i < end ? sample_key(c.x[i]) : 0;
    bool tie = i < end && key == c.cut.key;
    unsigned all = __ballot_sync(ALL_LANES, tie);
    int64_t rank = *ties + __popc(all & ((1u << threadIdx.x % WARP) - 1));
    bool left = i < end && (key > c.cut.key || (tie && rank < c.cut.ties));

    *ties += __popc(all);
    return left ? mass_of(c.x[i], c.max, scale) : 0;
}

/* Sum of the masses left, in each warp's share (WARPS); returns the whole. */
static __device__ int64_t sum_masses(const candidates &c, const int *before, float scale,
                                     int64_t *share)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, begin, end;
    int64_t ties = before[warp], sum = 0, total = 0;

    share_of(c.V, warp, &begin, &end);
    for (int i = begin; i < end; i += WARP)
        sum += mass_left(c, i + lane, end, scale, &ties);
    sum = warp_reduce((long long)sum, reduce_sum());
    __syncthreads();
    if (lane == 0)
        share[warp] = sum;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        total += share[w];
    return total;
}

/* The first id whose cumulated mass is above `stop`, put into *token by the warp that
 * has it. */
static __device__ void walk(const candidates &c, const int *before, float scale,
                            const int64_t *share, int64_t stop, int32_t *token)
{
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, begin, end;
    int64_t sum = 0, ties = before[warp];

    for (int w = 0; w < warp; w++)
        sum += share[w];
    if (sum > stop || sum + share[warp] <= stop)
        return;
    share_of(c.V, warp, &begin, &end);
    for (int i = begin; i < end; i += WARP) {
        int64_t upto = mass_left(c, i + lane, end, scale, &ties);
        for (int far = 1; far < WARP; far *= 2) {
            int64_t earlier = __shfl_up_sync(ALL_LANES, (long long)upto, far);
            if (lane >= far)
                upto += earlier;
        }
        unsigned past = __ballot_sync(ALL_LANES, sum + upto > stop);
        if (past) {
            if (lane == 0)
                *token = i + __ffs((int)past) - 1;
            return;
        }
        sum += __shfl_sync(ALL_LANES, (long long)upto, WARP - 1);
    }
}

static __device__ int32_t draw(const sample_args &a, candidates *c,
                               const kernel_sample_row &row)
{
    __shared__ int before[WARPS];
    __shared__ int64_t share[WARPS];
    __shared__ int32_t token;
    uint64_t random = sample_random(a.seed, (uint32_t)row.stream, (uint32_t)row.pos);
    int64_t total;

    if (a.top_k > 0 && a.top_k < c->V)
        cut_at(c, a.top_k, false);
    if (a.top_p < 1.0f) {
        count_ties(*c, before);
        total = sum_masses(*c, before, 1.0f, share);
        int64_t want = (int64_t)((double)a.top_p * (double)total);
        cut_at(c, want < 1 ? 1 : want, true);
    }
    uint32_t least = sample_key(__fadd_rn(c->max, a.min_log_p));
    if (least > c->cut.key)
        c->cut = {least, c->V};
    count_ties(*c, before);
    total = sum_masses(*c, before, a.inverse_temperature, share);
    walk(*c, before, a.inverse_temperature, share,
         (int64_t)__umul64hi(random, (uint64_t)total), &token);
    __syncthreads();
    return token;
}

/* Block r: row r. A bad row gets token 0, so that what follows has a valid id. */
static __global__ void __launch_bounds__(THREADS) sample(sample_args a)
{
    kernel_sample_row row = a.row[blockIdx.x];
    float *x = a.logits + (size_t)blockIdx.x * a.V;
    candidates c = {x, a.V, 0, {0, a.V}};
    int32_t token = 0;
    bool good;

    penalise(a, x, row);
    good = find_max(&c);
    if (good)
        token = a.inverse_temperature == 0 ? first_of_max(c) : draw(a, &c, row);
    if (threadIdx.x)
        return;
    if (!good)
        *a.bad = *a.bad_host = 1;
    a.tokens[row.slot] = token;
    a.recent[(size_t)row.slot * KERNEL_RECENT + row.pos % KERNEL_RECENT] = token;
}

void sample_cuda(struct kernel_ctx *ctx, int32_t *tokens, int32_t *recent, int32_t *bad,
                 float *logits, const struct kernel_sample_row *row,
                 const struct kernel_sampling *p, int rows, int V)
{
    cudaStream_t stream = cuda_begin(ctx);
    struct kernel_sampling q = kernel_sampling_clamp(p);
    sample_args a = {};

    if (rows <= 0)
        return;
    a.tokens = tokens;
    a.recent = recent;
    a.bad = bad;
    a.bad_host = ctx->cuda->bad_device;
    a.logits = logits;
    a.row = row;
    a.V = V;
    a.top_k = q.top_k;
    a.top_p = q.top_p;
    a.min_log_p = q.min_p > 0.0f ? logf(q.min_p) : -INFINITY;
    a.repeat_penalty = q.repeat_penalty;
    a.inverse_temperature = q.temperature == 0 ? 0.0f : 1.0f / q.temperature;
    a.seed = q.seed;
    sample<<<rows, THREADS, 0, stream>>>(a);
    cuda_launched(ctx, "sample");
}
