/* The inner loops for x86-64 with AVX2 and FMA: vectors of eight. */
#include "kernels/vec.h"

#if VEC_HAVE_X86
#include <immintrin.h>

#define VEC              8
#define VEC_FN           __attribute__((target("avx2,fma")))
#define VEC_NAME         vec_avx2
#define VEC_TEXT         "avx2"
#define VEC_FMA(a, b, c) ((vf)_mm256_fmadd_ps(a, b, c))
#define VEC_FMA_EXACT    VEC_FMA
#define VEC_MAX(a, b)    ((vf)_mm256_max_ps(a, b))
#define VEC_MIN(a, b)    ((vf)_mm256_min_ps(a, b))
#define VEC_SQRT(x)      ((vf)_mm256_sqrt_ps(x))
#define VEC_FOLD(x)                                                                      \
    ((v4)_mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)))
#define VEC_DOT_ROWS  2
#define VEC_DOT_COLS  4
#define VEC_TILE_ROWS 6
#define VEC_TILE_COLS 2

#include "kernels/vec_body.h"
#endif
