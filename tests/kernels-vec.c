/* The inner loops for every kind of processor that this one can run. */
#include "kernels/vec.h"
#include "tests/kernels.h"

static uint64_t rng = 3;

/* Steps between float e and its double. */
static double ulps(float x, double want)
{
    float near = (float)want;

    return fabs(x - want) / (nextafterf(near, INFINITY) - near);
}

static void check_soften(const struct vec_ops *v, int round, int rounds)
{
    enum { N = 1008 };
    float x[N], y[N], max = 0.25f;
    int seen = N - 1 - round % 17;
    double sum = 0;

    for (int i = 0; i < N; i++)
        x[i] = y[i] = -86.5f * (float)(i + round * N) / (float)(N * rounds);
    float got = v->soften(y, seen, N, &max);
    assert_true(max == 0.25f);
    for (int i = 0; i < seen; i++) {
        double want = exp((double)(x[i] - 0.25f));
        sum += want;
        if (ulps(y[i], want) > 1.5)
            fail_msg("%s: exp(%.9g) is %.9g", v->name, x[i] - 0.25f, y[i]);
    }
    for (int i = seen; i < N; i++)
        assert_true(y[i] == 0);
    assert_true(fabs(got - sum) <= 1e-5 * sum);
    assert_true(fabs(v->exp_total(x, (size_t)seen, 0.25f) - sum) <= 2e-7 * sum);
}

static void test_exp(void **state)
{
    (void)state;
    for (const struct vec_ops *const *v = vec_list(); *v; v++) {
        for (int round = 0; round < 300; round++)
            check_soften(*v, round, 300);
    }
}

/* The maximum is found whether it was known before or stands anywhere, even last. */
static void test_soften(void **state)
{
    float x[48];

    (void)state;
    for (const struct vec_ops *const *v = vec_list(); *v; v++) {
        for (int seen = 0; seen <= 48; seen++) {
            float max = seen % 2 ? -INFINITY : -3;
            for (int i = 0; i < 48; i++)
                x[i] = i < seen ? -4.0f : NAN;
            if (seen)
                x[seen - 1] = 1;
            float sum = (*v)->soften(x, seen, 48, &max);
            assert_true(max == (seen ? 1 : -3));
            assert_true(fabs(sum - (seen ? 1 + (seen - 1) * exp(-5) : 0)) < 1e-6);
            assert_true(seen == 48 || x[47] == 0);
        }
    }
}

static void test_max(void **state)
{
    float x[100];

    (void)state;
    for (const struct vec_ops *const *v = vec_list(); *v; v++) {
        for (int n = 1; n <= 100; n++) {
            bool nan = false;
            for (int i = 0; i < 100; i++)
                x[i] = i < n ? -random_float(&rng, 1) - 5 : 100;
            x[n / 2] = -1;
            assert_true((*v)->max(x, (size_t)n, &nan) == -1);
            assert_false(nan);
            x[n - 1] = NAN;
            (*v)->max(x, (size_t)n, &nan);
            assert_true(nan);
        }
    }
}

/* Weights of sampling agree to the bit between processors. */
static void test_masses(void **state)
{
    enum { N = 5003 };
    float *x = random_floats(&rng, N, 30);
    int64_t first[N], m[N];

    (void)state;
    x[0] = 30;
    x[1] = -INFINITY;
    for (const struct vec_ops *const *v = vec_list(); *v; v++) {
        (*v)->masses(m, x, N, 30, 0.7f);
        if (v == vec_list())
            memcpy(first, m, sizeof(m));
        assert_memory_equal(first, m, sizeof(m));
        assert_true(m[0] == (int64_t)1 << 40);
        assert_true(m[1] == 0);
        for (int i = 0; i < N; i++) {
            double want = exp((x[i] - 30.0) * (double)0.7f) * 0x1p40;
            assert_true(fabs((double)m[i] - want) <= 4e-6 * want + 1);
        }
    }
    free(x);
}

static void check_products(const struct vec_ops *v, int rows, int n, int k)
{
    float *x = random_floats(&rng, (size_t)rows * k, 1),
          *w = random_floats(&rng, (size_t)n * k, 1);
    float *y = test_alloc((size_t)rows * n * sizeof(*y));
    double *ref = test_alloc((size_t)rows * n * sizeof(*ref));

    for (int i = 0; i < rows * n; i++) {
        for (int j = 0; j < k; j++)
            ref[i] += (double)x[i / n * k + j] * w[i % n * k + j];
    }
    v->dots(y, (size_t)n, x, (size_t)k, w, rows, n, k);
    check_error(v->name, y, ref, (size_t)rows * n, 1e-6);
    free(x);
    free(w);
    free(y);
    free(ref);
}

static void check_sums(const struct vec_ops *v, int rows, int n, int d)
{
    float *p = random_floats(&rng, (size_t)rows * n, 1),
          *w = random_floats(&rng, (size_t)n * d, 1);
    float *o = random_floats(&rng, (size_t)rows * d, 1);
    double *ref = test_alloc((size_t)rows * d * sizeof(*ref));

    for (int i = 0; i < rows * d; i++) {
        ref[i] = o[i];
        for (int t = 0; t < n; t++)
            ref[i] += (double)p[i / d * n + t] * w[t * d + i % d];
    }
    v->sums(o, (size_t)d, p, (size_t)n, w, rows, n, d);
    check_error(v->name, o, ref, (size_t)rows * d, 1e-6);
    free(p);
    free(w);
    free(o);
    free(ref);
}

/* c = a b and c += a b with strides; and each row alone gives the same bits. */
static void check_multiply(const struct vec_ops *v, int rows, int cols, int depth,
                           bool add)
{
    size_t lda = (size_t)depth + 3, ldb = (size_t)cols + 5, ldc = (size_t)cols + 2;
    float *a = random_floats(&rng, rows * lda, 1),
          *b = random_floats(&rng, depth * ldb, 1);
    float *c = random_floats(&rng, rows * ldc, 1),
          *one = test_alloc(rows * ldc * sizeof(*one));
    double *ref = test_alloc(rows * ldc * sizeof(*ref));

    memcpy(one, c, rows * ldc * sizeof(*c));
    for (size_t i = 0; i < rows * ldc; i++) {
        size_t r = i / ldc, j = i % ldc;
        ref[i] = add || j >= (size_t)cols ? c[i] : 0;
        for (int k = 0; k < depth && j < (size_t)cols; k++)
            ref[i] += (double)a[r * lda + k] * b[k * ldb + j];
    }
    v->multiply(c, ldc, a, lda, b, ldb, rows, cols, depth, add);
    check_error(v->name, c, ref, rows * ldc, 1e-6);
    for (int r = 0; r < rows; r++)
        v->multiply(one + r * ldc, ldc, a + r * lda, lda, b, ldb, 1, cols, depth, add);
    assert_memory_equal(one, c, rows * ldc * sizeof(*c));
    free(a);
    free(b);
    free(c);
    free(one);
    free(ref);
}

static void check_transpose(const struct vec_ops *v, int rows, int cols)
{
    size_t ldx = (size_t)cols + 1, ldy = (size_t)rows + 7;
    float *x = random_floats(&rng, rows * ldx, 1),
          *y = test_alloc(cols * ldy * sizeof(*y));

    v->transpose(y, ldy, x, ldx, rows, cols);
    for (int i = 0; i < rows * cols; i++)
        assert_true(x[i / cols * ldx + i % cols] == y[i % cols * ldy + i / cols]);
    for (int c = 0; c < cols; c++)
        assert_true(y[c * ldy + rows] == 0);
    free(x);
    free(y);
}

static void test_products(void **state)
{
    (void)state;
    for (const struct vec_ops *const *v = vec_list(); *v; v++) {
        for (int i = 0; i < 80; i++) {
            check_products(*v, random_int(&rng, 1, 33), random_int(&rng, 1, 40),
                           random_int(&rng, 1, 90));
            check_sums(*v, random_int(&rng, 1, 12), random_int(&rng, 1, 64),
                       8 * random_int(&rng, 1, 17));
            check_multiply(*v, random_int(&rng, 1, 30), 8 * random_int(&rng, 1, 17),
                           random_int(&rng, 1, 70), i % 2);
            check_transpose(*v, random_int(&rng, 1, 70), 4 * random_int(&rng, 1, 20));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),      cmocka_unit_test(test_soften),
        cmocka_unit_test(test_max),      cmocka_unit_test(test_masses),
        cmocka_unit_test(test_products),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
