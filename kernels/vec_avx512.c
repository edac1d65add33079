/* The inner loops for x86-64 with AVX-512: vectors of sixteen. */
#include "kernels/vec.h"

#if VEC_HAVE_X86
#include <immintrin.h>

#define VEC              16
#define VEC_FN           __attribute__((target("avx2,fma,avx512f,avx512dq")))
#define VEC_NAME         vec_avx512
#define VEC_TEXT         "avx512"
#define VEC_FMA(a, b, c) ((vf)_mm512_fmadd_ps(a, b, c))
#define VEC_FMA_EXACT    VEC_FMA
#define VEC_MAX(a, b)    ((vf)_mm512_max_ps(a, b))
#define VEC_MIN(a, b)    ((vf)_mm512_min_ps(a, b))
#define VEC_SQRT(x)      ((vf)_mm512_sqrt_ps(x))
#define VEC_HALF(x)      _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1))
#define VEC_FOLD(x)                                                                      \
    ((v4)_mm_add_ps(_mm256_castps256_ps128(VEC_HALF(x)),                                 \
                    _mm256_extractf128_ps(VEC_HALF(x), 1)))
#define VEC_DOT_ROWS  4
#define VEC_DOT_COLS  4
#define VEC_TILE_ROWS 6
#define VEC_TILE_COLS 4

#include "kernels/vec_body.h"
#endif
