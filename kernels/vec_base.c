/* The inner loops for any processor: vectors of four. */
#include <math.h>

#define VEC 4
#define VEC_FN
#define VEC_NAME         vec_base
#define VEC_TEXT         "base"
#define VEC_FMA(a, b, c) ((a) * (b) + (c))
#define VEC_FMA_EXACT(a, b, c)                                                           \
    ((vf){fmaf((a)[0], (b)[0], (c)[0]), fmaf((a)[1], (b)[1], (c)[1]),                    \
          fmaf((a)[2], (b)[2], (c)[2]), fmaf((a)[3], (b)[3], (c)[3])})
#define VEC_MAX(a, b) pick((a) > (b), a, b)
#define VEC_MIN(a, b) pick((a) < (b), a, b)
#define VEC_SQRT(x)   ((vf){sqrtf((x)[0]), sqrtf((x)[1]), sqrtf((x)[2]), sqrtf((x)[3])})
#define VEC_FOLD(x)   (x)
#define VEC_DOT_ROWS  2
#define VEC_DOT_COLS  4
#define VEC_TILE_ROWS 4
#define VEC_TILE_COLS 2

#include "kernels/vec_body.h"
