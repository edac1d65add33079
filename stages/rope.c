/* Rotary position embeddings: the table of cos and sin. Every step is rounded to fp32
 * where transformers (modeling_rope_utils.py) does, because large positions multiply what
 * is lost in a frequency. */
#include <math.h>

#include "kernels/kernel.h"
#include "stages/model.h"

static float pos_freq(const struct model_config *c, size_t i)
{
    return powf((float)c->rope.theta, (float)(2 * i) / (float)c->D);
}

static float llama3_freq(const struct model_config *c, float freq)
{
    const float factor = (float)c->rope.factor, low = (float)c->rope.low_freq_factor;
    const float original = (float)c->rope.original_positions;
    const double low_wavelen = c->rope.original_positions / c->rope.low_freq_factor;
    const double high_wavelen = c->rope.original_positions / c->rope.high_freq_factor;
    const float wavelen = (1.0f / freq) * (float)(2 * M_PI);

    if (wavelen < (float)high_wavelen)
        return freq;
    if (wavelen > (float)low_wavelen)
        return freq / factor;
    float smooth = (1.0f / wavelen) * original - low;
    smooth /= (float)(c->rope.high_freq_factor - c->rope.low_freq_factor);
    float slow = (1.0f - smooth) * freq / factor, fast = smooth * freq;
    return slow + fast;
}

/* Dimension, of D, whose frequency turns `rotations` times within the original
 * context. */
static double yarn_dim(const struct model_config *c, double rotations)
{
    return (double)c->D * log(c->rope.original_positions / (rotations * 2 * M_PI)) /
           (2 * log(c->rope.theta));
}

/* Where interpolation begins and where it is complete, in dimensions. */
static void yarn_range(const struct model_config *c, double *low, double *high)
{
    *low = yarn_dim(c, c->rope.beta_fast);
    *high = yarn_dim(c, c->rope.beta_slow);
    if (c->rope.truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = *low > 0 ? *low : 0;
    *high = *high < (double)(c->D - 1) ? *high : (double)(c->D - 1);
    if (*low == *high)
        *high += 0.001;
}

static float yarn_freq(const struct model_config *c, size_t i)
{
    const float pos = pos_freq(c, i);
    double low, high;

    yarn_range(c, &low, &high);
    float ramp = ((float)i - (float)low) / (float)(high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    float keep = 1.0f - ramp;
    float slow = 1.0f / ((float)c->rope.factor * pos) * (1.0f - keep);
    float fast = 1.0f / pos * keep;
    return slow + fast;
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static float attention_factor(const struct model_config *c)
{
    const double factor = c->rope.factor;

    if (c->rope.kind != ROPE_YARN)
        return 1;
    if (c->rope.attention_factor != 0)
        return (float)c->rope.attention_factor;
    if (c->rope.mscale != 0 && c->rope.mscale_all_dim != 0)
        return (float)(yarn_mscale(factor, c->rope.mscale) /
                       yarn_mscale(factor, c->rope.mscale_all_dim));
    return (float)yarn_mscale(factor, 1);
}

/* Radians per position of pair i. */
static float frequency(const struct model_config *c, size_t i)
{
    float freq = 1.0f / pos_freq(c, i);

    if (c->rope.kind == ROPE_LINEAR)
        freq /= (float)c->rope.factor;
    else if (c->rope.kind == ROPE_LLAMA3)
        freq = llama3_freq(c, freq);
    else if (c->rope.kind == ROPE_YARN)
        freq = yarn_freq(c, i);
    return c->rope.factors ? freq / c->rope.factors[i] : freq;
}

void model_rope_table(const struct model_config *c, float *cos_sin, size_t positions)
{
    const size_t pairs = c->D / 2;
    const float scale = attention_factor(c);
    float freq[KERNEL_MAX_HEAD_DIM / 2];

    for (size_t i = 0; i < pairs; i++)
        freq[i] = frequency(c, i);
    for (size_t p = 0; p < positions; p++)
        for (size_t i = 0; i < pairs; i++) {
            float angle = (float)p * freq[i];
            *cos_sin++ = cosf(angle) * scale;
            *cos_sin++ = sinf(angle) * scale;
        }
}
