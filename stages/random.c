/* A counter-based generator: any row can be drawn by itself, in any order. A weight is
 * the sum of four bytes of a hash, which is near to normal (kurtosis 2.7, no value beyond
 * 3.5 standard deviations) and costs a nanosecond. */
#include "stages/random.h"

#include <string.h>

#define DEVIATION     0.02f
/* Of the sum of four bytes: mean 4 * 255 / 2, variance 4 * (256^2 - 1) / 12. */
#define SUM_MEAN      510.0f
#define SUM_DEVIATION 147.80054f

uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* wyrand (Wang Yi) at step i: both halves of one wide product. */
static uint64_t hash(uint64_t key, uint64_t i)
{
    uint64_t x = key + i * 0xa0761d6478bd642f;
    unsigned __int128 product = (unsigned __int128)x * (x ^ 0xe7037ed1a0b428db);
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* Elements by 32 hashes of two: the hashes first, then a loop over their halves that
 * vectorises. */
static void random_row(float *restrict out, uint64_t key, size_t cols)
{
    for (size_t first = 0; first < cols; first += 64) {
        size_t n = cols - first < 64 ? cols - first : 64;
        uint64_t hashes[32];
        uint32_t half[64];

        for (size_t i = 0; i < 32; i++)
            hashes[i] = hash(key, first / 2 + i + 1);
        memcpy(half, hashes, sizeof(half));
        for (size_t i = 0; i < n; i++) {
            uint32_t pairs = (half[i] & 0x00ff00ff) + (half[i] >> 8 & 0x00ff00ff);
            int32_t sum = (int32_t)((pairs & 0xffff) + (pairs >> 16));
            out[first + i] = ((float)sum - SUM_MEAN) * (DEVIATION / SUM_DEVIATION);
        }
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
    uint64_t key = random_mix(random_mix(m->seed) + layer * MODEL_WEIGHT_COUNT + weight);
    for (size_t r = 0; r < rows; r++)
        random_row(out + r * cols, random_mix(key + first + r), cols);
}
