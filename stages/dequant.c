/* Element types of files to fp32. Block layouts are those of ggml (ggml-common.h): scales
 * are fp16, quants little integers. Every product below is exact in fp32 (11 bits of
 * scale, at most 7 of sub-scale and 6 of quant), so results do not depend on how the
 * compiler contracts or orders them. */
#include <assert.h>
#include <string.h>

#include "stages/model.h"

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static uint16_t load16(const uint8_t *p)
{
    uint16_t x;
    memcpy(&x, p, sizeof(x));
    return x;
}

/* Exponents move from bias 15 to 127; subnormal halves are made normal by a subtraction.
 * Without branches, so that loops vectorise, and without subnormal floats, which lanes
 * may flush. */
static float half(uint16_t h)
{
    const int32_t shifted = (h & 0x7fff) << 13, bias = 112 << 23, tiny_bias = 113 << 23;
    const int32_t is_tiny = -(shifted < 1 << 23), is_huge = -(shifted >= 31 << 23);
    int32_t normal =
        shifted + bias + (is_huge & bias); /* infinity and NaN: exponent 255 */
    float tiny =
        float_of((uint32_t)(shifted + tiny_bias)) - float_of((uint32_t)tiny_bias);
    int32_t tiny_bits;

    memcpy(&tiny_bits, &tiny, sizeof(tiny));
    uint32_t magnitude = (uint32_t)((tiny_bits & is_tiny) | (normal & ~is_tiny));
    return float_of(magnitude | (uint32_t)(h & 0x8000) << 16);
}

static void from_f16(float *restrict y, const uint8_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = half(load16(x + 2 * i));
}

static void from_bf16(float *restrict y, const uint8_t *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = float_of((uint32_t)load16(x + 2 * i) << 16);
}

/* Blocks of 32. y (32), x one block. Low nibbles are the first half, high ones the
 * second. */
static void block_q4_0(float *restrict y, const uint8_t *restrict x)
{
    const float d = half(load16(x));
    const uint8_t *q = x + 2;

    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((q[i] & 15) - 8);
        y[i + 16] = d * (float)((q[i] >> 4) - 8);
    }
}

static void block_q4_1(float *restrict y, const uint8_t *restrict x)
{
    const float d = half(load16(x)), m = half(load16(x + 2));
    const uint8_t *q = x + 4;

    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(q[i] & 15) + m;
        y[i + 16] = d * (float)(q[i] >> 4) + m;
    }
}

/* Bits 0 to 7 of b as eight bytes of 0 or 16: byte k keeps bit k alone, which then moves
 * to bit 7. */
static uint64_t spread(uint8_t b)
{
    uint64_t x = (b * UINT64_C(0x0101010101010101)) & UINT64_C(0x8040201008040201);
    return ((x + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 3) & UINT64_C(0x1010101010101010);
}

/* The fifth bits of 32 quants are one little-endian integer, here put to v (32). */
static void fifth_bits(uint8_t *v, const uint8_t *bits)
{
    for (int i = 0; i < 4; i++) {
        uint64_t eight = spread(bits[i]);
        memcpy(v + 8 * i, &eight, sizeof(eight));
    }
}

static void block_q5_0(float *restrict y, const uint8_t *restrict x)
{
    const float d = half(load16(x));
    const uint8_t *q = x + 6;
    uint8_t v[32];

    fifth_bits(v, x + 2);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)((v[i] | (q[i] & 15)) - 16);
        y[i + 16] = d * (float)((v[i + 16] | q[i] >> 4) - 16);
    }
}

static void block_q5_1(float *restrict y, const uint8_t *restrict x)
{
    const float d = half(load16(x)), m = half(load16(x + 2));
    const uint8_t *q = x + 8;
    uint8_t v[32];

    fifth_bits(v, x + 4);
    for (int i = 0; i < 16; i++) {
        y[i] = d * (float)(v[i] | (q[i] & 15)) + m;
        y[i + 16] = d * (float)(v[i + 16] | q[i] >> 4) + m;
    }
}

static void block_q8_0(float *restrict y, const uint8_t *restrict x)
{
    const float d = half(load16(x));
    const int8_t *q = (const int8_t *)x + 2;

    for (int i = 0; i < 32; i++)
        y[i] = d * (float)q[i];
}

/* Scale and minimum of sub-block j of 8: twelve bytes hold both, six bits each. */
static void scale_min(int j, const uint8_t *s, float *scale, float *min)
{
    if (j < 4) {
        *scale = (float)(s[j] & 63);
        *min = (float)(s[j + 4] & 63);
    } else {
        *scale = (float)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
        *min = (float)(s[j + 4] >> 4 | (s[j] >> 6) << 4);
    }
}

/* Blocks of 256: eight sub-blocks of 32; two of them share 32 bytes of nibbles. */
static void block_q4_k(float *restrict y, const uint8_t *restrict x)
{
    const float d = half(load16(x)), dmin = half(load16(x + 2));
    const uint8_t *scales = x + 4, *q = x + 16;
    float s, m;

    for (int j = 0; j < 8; j++) {
        const int shift = j % 2 * 4;
        scale_min(j, scales, &s, &m);
        s *= d;
        m *= dmin;
        for (int i = 0; i < 32; i++)
            y[32 * j + i] = s * (float)(q[j / 2 * 32 + i] >> shift & 15) - m;
    }
}

/* The same with fifth bits: bit j of byte i belongs to element i of sub-block j. */
static void block_q5_k(float *restrict y, const uint8_t *restrict x)
{
    const float d = half(load16(x)), dmin = half(load16(x + 2));
    const uint8_t *scales = x + 4, *high = x + 16, *q = x + 48;
    float s, m;

    for (int j = 0; j < 8; j++) {
        const int shift = j % 2 * 4;
        scale_min(j, scales, &s, &m);
        s *= d;
        m *= dmin;
        for (int i = 0; i < 32; i++) {
            int v = (q[j / 2 * 32 + i] >> shift & 15) | (high[i] >> j & 1) << 4;
            y[32 * j + i] = s * (float)v - m;
        }
    }
}

/* Blocks of 256: sixteen sub-blocks of 16 with signed scales. In each half of 128, the
 * k-th 32 take nibbles from 32 bytes at k % 2 * 32 and two bits each from all 32 high
 * bytes. */
static void block_q6_k(float *restrict y, const uint8_t *restrict x)
{
    const uint8_t *low = x, *high = x + 128;
    const int8_t *scales = (const int8_t *)x + 192;
    const float d = half(load16(x + 208));

    for (int run = 0; run < 16; run++) {
        const int part = run / 8, k = run / 2 % 4, at = run % 2 * 16;
        const uint8_t *lo = low + part * 64 + k % 2 * 32 + at,
                      *hi = high + part * 32 + at;
        const int low_shift = k / 2 * 4, high_shift = 2 * k;
        const float scale = d * (float)scales[run];
        for (int i = 0; i < 16; i++) {
            int v = (lo[i] >> low_shift & 15) | (hi[i] >> high_shift & 3) << 4;
            y[run * 16 + i] = scale * (float)(v - 32);
        }
    }
}

static void blocks(float *y, enum dtype type, const uint8_t *x, size_t n,
                   void (*block)(float *restrict, const uint8_t *restrict))
{
    const size_t elements = dtype_block_elements(type), bytes = dtype_block_bytes(type);

    for (size_t i = 0; i < n / elements; i++)
        block(y + i * elements, x + i * bytes);
}

void dequantize(float *out, enum dtype type, const void *data, size_t n)
{
    switch (type) {
    case DTYPE_F32:
        memcpy(out, data, n * sizeof(*out));
        return;
    case DTYPE_F16:
        from_f16(out, data, n);
        return;
    case DTYPE_BF16:
        from_bf16(out, data, n);
        return;
    case DTYPE_Q4_0:
        blocks(out, type, data, n, block_q4_0);
        return;
    case DTYPE_Q4_1:
        blocks(out, type, data, n, block_q4_1);
        return;
    case DTYPE_Q5_0:
        blocks(out, type, data, n, block_q5_0);
        return;
    case DTYPE_Q5_1:
        blocks(out, type, data, n, block_q5_1);
        return;
    case DTYPE_Q8_0:
        blocks(out, type, data, n, block_q8_0);
        return;
    case DTYPE_Q4_K:
        blocks(out, type, data, n, block_q4_k);
        return;
    case DTYPE_Q5_K:
        blocks(out, type, data, n, block_q5_k);
        return;
    case DTYPE_Q6_K:
        blocks(out, type, data, n, block_q6_k);
        return;
    case DTYPE_I32:
    case DTYPE_COUNT:
        break;
    }
    assert(!"a type of weights");
}
