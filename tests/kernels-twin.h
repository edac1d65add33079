/* What the twin tests share: a CPU and a CUDA context of each type, and ways to
 * compare. */
#ifndef PENSTOCK_TESTS_TWIN_H
#define PENSTOCK_TESTS_TWIN_H

#include "kernels/device.h"
#include "tests/kernels.h"

struct twin {
    enum dtype dtype;
    double bound; /* relative 2-norm of a difference */
    void *stream;
    struct kernel_ctx *cpu, *gpu;
};

static struct twin twins[] = {
    {.dtype = DTYPE_F32, .bound = 3e-6},
    {.dtype = DTYPE_BF16, .bound = 1e-2},
};

static inline int twin_setup(void **state)
{
    struct twin *t = *state;
    struct device_info info;

    if (device_query(&info, 0) || device_stream_create(&t->stream, 0, false) ||
        kernel_cpu_create(&t->cpu, 2, NULL))
        return -1;
    return kernel_cuda_create(&t->gpu, 0, t->stream, info.sm_count, t->dtype);
}

static inline int twin_teardown(void **state)
{
    struct twin *t = *state;

    kernel_destroy(t->gpu);
    kernel_destroy(t->cpu);
    device_stream_destroy(t->stream);
    return 0;
}

static inline float bf16_to_float(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;

    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* n random numbers that the GPU's type holds exactly. */
static inline float *numbers(const struct twin *t, uint64_t *rng, size_t n, float scale)
{
    float *x = random_floats(rng, n, scale);

    for (size_t i = 0; i < n && t->dtype == DTYPE_BF16; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        x[i] = bf16_to_float((uint16_t)(bits >> 16));
    }
    return x;
}

/* Copies to the GPU; NULL stays NULL. */
static inline void *up(const struct twin *t, const void *x, size_t bytes)
{
    void *p;

    if (!x)
        return NULL;
    assert_int_equal(t->gpu->ops->mem_alloc(t->gpu, &p, bytes), 0);
    t->gpu->ops->upload(t->gpu, p, x, bytes);
    return p;
}

static inline void *up_numbers(const struct twin *t, const float *x, size_t n)
{
    void *p;

    if (!x)
        return NULL;
    assert_int_equal(t->gpu->ops->mem_alloc(t->gpu, &p, n * sizeof(float)), 0);
    t->gpu->ops->upload_f32(t->gpu, p, x, n);
    return p;
}

static inline void down(const struct twin *t, void *x, const void *p, size_t bytes)
{
    t->gpu->ops->download(t->gpu, x, p, bytes);
    t->gpu->ops->sync(t->gpu);
    assert_int_equal(kernel_error(t->gpu), 0);
}

/* n numbers of the GPU's type as floats. */
static inline float *down_numbers(const struct twin *t, const void *p, size_t n)
{
    float *x = test_alloc(n * sizeof(*x));
    uint16_t *raw = test_alloc(n * sizeof(*raw));

    if (t->dtype == DTYPE_F32) {
        down(t, x, p, n * sizeof(*x));
    } else {
        down(t, raw, p, n * sizeof(*raw));
        for (size_t i = 0; i < n; i++)
            x[i] = bf16_to_float(raw[i]);
    }
    free(raw);
    return x;
}

static inline void drop(const struct twin *t, void *p)
{
    t->gpu->ops->mem_free(t->gpu, p);
}

/* Fails if x is not near y; says which kernel, type and case. */
static inline void compare_floats(const struct twin *t, const char *what, const float *x,
                                  const float *y, size_t n, double bound)
{
    double *ref = test_alloc(n * sizeof(*ref)), error;

    for (size_t i = 0; i < n; i++)
        ref[i] = y[i];
    error = relative_error(x, ref, n);
    free(ref);
    if (!(error <= bound))
        fail_msg("%s, %s: the GPU differs by %.3g, bound %.3g", what,
                 dtype_name(t->dtype), error, bound);
}

static inline void compare(const struct twin *t, const char *what, const void *gpu,
                           const float *cpu, size_t n)
{
    float *x = down_numbers(t, gpu, n);

    compare_floats(t, what, x, cpu, n, t->bound);
    free(x);
}

static inline struct CMUnitTest twin_test(const char *name, CMUnitTestFunction test,
                                          int twin)
{
    return (struct CMUnitTest){name, test, twin_setup, twin_teardown, &twins[twin]};
}

#define IN_F32(test)  twin_test(#test " in F32", test, 0)
#define IN_BF16(test) twin_test(#test " in BF16", test, 1)

#endif
