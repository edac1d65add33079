/* The one BLAS routine that CPU kernels call. OpenBLAS is loaded when the first CPU lane
 * is made, not linked, because it chooses its kernels while it is being loaded: a build
 * that is older than the processor takes those of 2004 unless told better before. */
#ifndef PENSTOCK_BLAS_H
#define PENSTOCK_BLAS_H

#include <stdbool.h>

/* Loads OpenBLAS, once, single-threaded: lanes call it from threads of their own.
 * OPENBLAS_CORETYPE in the environment is respected. -ENOENT and one line if it is not
 * there. */
int blas_open(void);

/* C = alpha A op(B) + beta C, row-major: A (M, K), B (N, K) if transposed, else (K, N), C
 * (M, N); leading dimensions in elements. After blas_open. */
void blas_sgemm(bool transposed, int M, int N, int K, float alpha, const float *A,
                int lda, const float *B, int ldb, float beta, float *C, int ldc);

/* C = alpha A^T B + beta C: A (K, M), B (K, N), C (M, N). */
void blas_sgemm_tn(int M, int N, int K, float alpha, const float *A, int lda,
                   const float *B, int ldb, float beta, float *C, int ldc);

#endif
