/* The inner loops of training; vec_body.h includes this. What has no order of summation
 * is left to the compiler, which makes vectors of plain loops. */
#include "kernels/train.h"

VEC_LOOP void add(float *y, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

VEC_LOOP void add_product(float *y, const float *a, const float *b, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a[i] * b[i] * scale;
}

VEC_LOOP float dot_three(const float *a, const float *b, const float *c, size_t n)
{
    vf sum[2] = {{0}};
    size_t i = 0;

    for (; i + 2 * VEC <= n; i += 2 * VEC) {
        sum[0] = VEC_FMA(load(a + i) * load(b + i), load(c + i), sum[0]);
        sum[1] =
            VEC_FMA(load(a + i + VEC) * load(b + i + VEC), load(c + i + VEC), sum[1]);
    }
    for (; i < n; i += VEC) {
        size_t have = n - i < VEC ? n - i : VEC;
        vf x = load_part(a + i, have) * load_part(b + i, have);
        sum[0] = VEC_FMA(x, load_part(c + i, have), sum[0]);
    }
    return sum_of(sum[0] + sum[1]);
}

VEC_LOOP void norm_bwd(float *dx, const float *dy, const float *x, const float *w,
                       float scale, float shift, bool add, size_t n)
{
    for (size_t i = 0; add && i < n; i++)
        dx[i] += dy[i] * w[i] * scale - x[i] * shift;
    for (size_t i = 0; !add && i < n; i++)
        dx[i] = dy[i] * w[i] * scale - x[i] * shift;
}

/* With e = exp(-gate) and s = 1 / (1 + e), silu' = s (1 + gate e s): 1 - s would lose
 * digits. */
VEC_INLINE void swiglu_bwd_of(vf *dgate, vf *dup, vf dy, vf gate, vf up)
{
    vf e = exp_of(-gate, false), s = 1.0f / (1.0f + e);

    *dup = dy * gate * s;
    *dgate = dy * up * s * (1.0f + gate * (e * s));
}

VEC_LOOP void swiglu_bwd(float *dgate, float *dup, const float *dy, const float *gate,
                         const float *up, size_t n)
{
    size_t i = 0;
    vf a, b;

    for (; i + VEC <= n; i += VEC) {
        swiglu_bwd_of(&a, &b, load(dy + i), load(gate + i), load(up + i));
        store(dgate + i, a);
        store(dup + i, b);
    }
    if (i < n) {
        size_t have = n - i;
        swiglu_bwd_of(&a, &b, load_part(dy + i, have), load_part(gate + i, have),
                      load_part(up + i, have));
        memcpy(dgate + i, &a, have * sizeof(float));
        memcpy(dup + i, &b, have * sizeof(float));
    }
}

VEC_LOOP void softmax_bwd(float *dp, const float *p, float delta, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - delta) * scale;
}

VEC_LOOP void exp_scaled(float *y, const float *x, float max, float scale, size_t n)
{
    size_t i = 0;
    float rest[VEC];

    for (; i + VEC <= n; i += VEC)
        store(y + i, exp_of(load(x + i) - max, false) * scale);
    if (i < n) {
        store(rest, exp_of(load_part(x + i, n - i) - max, false) * scale);
        memcpy(y + i, rest, (n - i) * sizeof(float));
    }
}

VEC_LOOP double square_total(const float *x, size_t n)
{
    double sum[VEC] = {0}, total = 0;

    for (size_t i = 0; i < n; i += VEC) {
        size_t have = n - i < VEC ? n - i : VEC;
        vf a = have == VEC ? load(x + i) : load_part(x + i, have);
        UNROLL
        for (int l = 0; l < VEC; l++)
            sum[l] += (double)a[l] * a[l];
    }
    for (int l = 0; l < VEC; l++)
        total += sum[l];
    return total;
}

/* What is the same for all elements. */
struct adamw_step {
    float beta1, beta2, rest1, rest2, correct1, correct2, eps, decay, lr, scale;
};

VEC_INLINE void adamw_of(float *master, float *m, float *v, const float *g,
                         const struct adamw_step *p)
{
    vf x = load(master), gradient = load(g) * p->scale;
    vf first = load(m) * p->beta1 + gradient * p->rest1;
    vf second = load(v) * p->beta2 + gradient * gradient * p->rest2;
    vf step = first * p->correct1 / (VEC_SQRT(second * p->correct2) + p->eps);

    store(m, first);
    store(v, second);
    store(master, x - (step + x * p->decay) * p->lr);
}

VEC_LOOP void adamw(float *master, float *m, float *v, float *g,
                    const struct kernel_adamw *p, size_t n)
{
    const struct adamw_step step = {
        p->beta1,           p->beta2, 1 - p->beta1,    1 - p->beta2, 1 / p->correction1,
        1 / p->correction2, p->eps,   p->weight_decay, p->lr,        p->scale};
    float rest[4][VEC] = {{0}};
    size_t i = 0;

    for (; i + VEC <= n; i += VEC)
        adamw_of(master + i, m + i, v + i, g + i, &step);
    if (i < n) {
        size_t bytes = (n - i) * sizeof(float);
        memcpy(rest[0], master + i, bytes);
        memcpy(rest[1], m + i, bytes);
        memcpy(rest[2], v + i, bytes);
        memcpy(rest[3], g + i, bytes);
        adamw_of(rest[0], rest[1], rest[2], rest[3], &step);
        memcpy(master + i, rest[0], bytes);
        memcpy(m + i, rest[1], bytes);
        memcpy(v + i, rest[2], bytes);
    }
    memset(g, 0, n * sizeof(float));
}
