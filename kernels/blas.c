/* Loads OpenBLAS with kernels that fit the processor. */
#include "kernels/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "kernels/base.h"

#define LIBRARY "libopenblas.so.0"

static struct {
    int err;
    __typeof__(&cblas_sgemm) sgemm;
} blas;

/* The set of OpenBLAS's kernels for what the processor can do, by its features rather than by its model,
 * which an older OpenBLAS may not know. */
static const char *core_type(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

static void load(void)
{
    if (core_type())
        setenv("OPENBLAS_CORETYPE", core_type(), 0);
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    __typeof__(&openblas_set_num_threads) set_threads = NULL;
    if (library) {
        *(void **)&blas.sgemm = dlsym(library, "cblas_sgemm");
        *(void **)&set_threads = dlsym(library, "openblas_set_num_threads");
    }
    if (!blas.sgemm || !set_threads) {
        log_error("CPU lanes need OpenBLAS: %s",
                  library ? LIBRARY " is another BLAS" : dlerror());
        blas.err = -ENOENT;
        return;
    }
    set_threads(1);
}

int blas_open(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return blas.err;
}

void blas_sgemm(bool transposed, int M, int N, int K, float alpha, const float *A,
                int lda, const float *B, int ldb, float beta, float *C, int ldc)
{
    blas.sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, M, N,
               K, alpha, A, lda, B, ldb, beta, C, ldc);
}

void blas_sgemm_tn(int M, int N, int K, float alpha, const float *A, int lda,
                   const float *B, int ldb, float beta, float *C, int ldc)
{
    blas.sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, M, N, K, alpha, A, lda, B, ldb,
               beta, C, ldc);
}
