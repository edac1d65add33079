/* A counter-based generator: any row can be drawn by itself, in any order. A weight is the sum of the four bytes of
 * a hash, which is near to normal (kurtosis 2.7, no value beyond 3.5 standard deviations) and costs a
 * nanosecond. */
#include "stages/random.h"

#define DEVIATION     0.02f
/* Of the sum of four bytes: mean 4 * 255 / 2, variance 4 * (256^2 - 1) / 12. */
#define SUM_MEAN      510.0f
#define SUM_DEVIATION 147.80054f

static uint64_t mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* Two rounds of xor-shift and multiply: every bit of x reaches every byte. */
static uint32_t mix32(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352d;
    x = (x ^ (x >> 15)) * 0x846ca68b;
    return x ^ (x >> 16);
}

static void random_row(float *out, uint64_t key, size_t cols)
{
    uint32_t base = (uint32_t)key, salt = (uint32_t)(key >> 32);

    for (uint32_t i = 0; i < (uint32_t)cols; i++) {
        uint32_t h = mix32((base + i) ^ salt);
        int32_t sum = (int32_t)((h & 255) + (h >> 8 & 255) + (h >> 16 & 255) + (h >> 24));
        out[i] = ((float)sum - SUM_MEAN) * (DEVIATION / SUM_DEVIATION);
    }
}

static void fill(float *out, float value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = value;
}

void random_rows(float *out, const struct model *m, enum model_weight weight,
                 size_t layer, size_t first, size_t rows)
{
    size_t total, cols;

    model_weight_shape(&m->config, weight, &total, &cols);
    if (weight == MODEL_HEAD && m->config.tied)
        weight = MODEL_EMBED;
    if (cols == 1) {
        bool norm = weight == MODEL_OUT_NORM || weight == MODEL_ATTN_NORM ||
                    weight == MODEL_MLP_NORM || weight == MODEL_Q_NORM ||
                    weight == MODEL_K_NORM;
        fill(out, norm ? 1.0f : 0.0f, rows);
        return;
    }
    uint64_t key = mix64(mix64(m->seed) + layer * MODEL_WEIGHT_COUNT + weight);
    for (size_t r = 0; r < rows; r++)
        random_row(out + r * cols, mix64(key + first + r), cols);
}
