/* Configurations: bounds, shapes of weights, known sizes. */
#include "stages/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernel.h"

#define MAX_SIZE   ((size_t)1 << 24) /* V, C, F, H * D: kernels count them in int */
#define MAX_LAYERS ((size_t)4096)

static int bad_size(const char *name, const char *what, size_t n)
{
    log_error("%s: %s of %zu is out of bounds", name, what, n);
    return -EINVAL;
}

static int check_sizes(const struct model_config *c, const char *name)
{
    if (c->V < 1 || c->V > MAX_SIZE)
        return bad_size(name, "a vocabulary", c->V);
    if (c->C < 1 || c->C > MAX_SIZE)
        return bad_size(name, "a hidden size", c->C);
    if (c->F < 1 || c->F > MAX_SIZE)
        return bad_size(name, "an intermediate size", c->F);
    if (c->L < 1 || c->L > MAX_LAYERS)
        return bad_size(name, "a number of layers", c->L);
    if (c->H < 1 || c->H > MAX_SIZE / KERNEL_MAX_HEAD_DIM)
        return bad_size(name, "a number of heads", c->H);
    if (c->max_positions < 1 || c->max_positions > INT32_MAX)
        return bad_size(name, "a context length", c->max_positions);
    if (c->D < 1 || c->D > KERNEL_MAX_HEAD_DIM || c->D % KERNEL_HEAD_DIM_STEP) {
        log_error(
            "%s: a head dimension of %zu is not supported: multiples of %d up to %d are",
            name, c->D, KERNEL_HEAD_DIM_STEP, KERNEL_MAX_HEAD_DIM);
        return -ENOTSUP;
    }
    if (c->K < 1 || c->H % c->K) {
        log_error("%s: %zu heads cannot share %zu key/value heads", name, c->H, c->K);
        return -EINVAL;
    }
    return 0;
}

static int bad_rope(const char *name, const char *what)
{
    log_error("%s: RoPE needs %s", name, what);
    return -EINVAL;
}

static int check_rope(const struct model_config *c, const char *name)
{
    if (!(c->rope.theta > 1) || !isfinite((float)c->rope.theta))
        return bad_rope(name, "a theta greater than 1");
    if (c->rope.kind == ROPE_DEFAULT)
        return 0;
    if (!(c->rope.factor > 0) || !isfinite((float)c->rope.factor))
        return bad_rope(name, "a factor greater than 0");
    if (c->rope.kind == ROPE_LINEAR)
        return 0;
    if (!(c->rope.original_positions >= 1) ||
        !isfinite((float)c->rope.original_positions))
        return bad_rope(name, "an original context length");
    if (c->rope.kind == ROPE_LLAMA3 &&
        !(c->rope.low_freq_factor > 0 &&
          c->rope.high_freq_factor > c->rope.low_freq_factor))
        return bad_rope(name, "a high_freq_factor above a low_freq_factor above 0");
    if (c->rope.kind == ROPE_YARN && !(c->rope.beta_fast > 0 && c->rope.beta_slow > 0))
        return bad_rope(name, "a beta_fast and a beta_slow above 0");
    return 0;
}

int config_check(const struct model_config *c, const char *name)
{
    int err = check_sizes(c, name);

    if (err)
        return err;
    if (!(c->norm_eps >= 0 && c->norm_eps < 1)) {
        log_error("%s: a norm epsilon of %g is out of bounds", name, (double)c->norm_eps);
        return -EINVAL;
    }
    return check_rope(c, name);
}

int config_add_eos(struct model_config *c, int64_t id, const char *name)
{
    if (id < 0 || (uint64_t)id >= c->V)
        return 0;
    for (int i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id)
            return 0;
    if (c->n_eos == MODEL_MAX_EOS) {
        log_error("%s: more than %d end ids are not supported", name, MODEL_MAX_EOS);
        return -ENOTSUP;
    }
    c->eos[c->n_eos++] = (int32_t)id;
    return 0;
}

void model_weight_shape(const struct model_config *c, enum model_weight weight,
                        size_t *rows, size_t *cols)
{
    const size_t V = c->V, C = c->C, H = c->H, K = c->K, D = c->D, F = c->F;
    const size_t shapes[][2] = {
#define X(id, per_layer, rows, cols, hf, gguf) {rows, cols},
        MODEL_WEIGHT_LIST(X)
#undef X
    };
    *rows = shapes[weight][0];
    *cols = shapes[weight][1];
}

void model_weight_name(char *name, size_t size, enum model_weight weight, size_t layer)
{
    static const struct {
        bool per_layer;
        const char *name;
    } names[] = {
#define X(id, per_layer, rows, cols, hf, gguf) {per_layer, hf},
        MODEL_WEIGHT_LIST(X)
#undef X
    };
    if (names[weight].per_layer)
        snprintf(name, size, "model.layers.%zu.%s", layer, names[weight].name);
    else
        snprintf(name, size, "%s", names[weight].name);
}

bool model_weight_wanted(const struct model_config *c, enum model_weight weight)
{
    switch (weight) {
    case MODEL_HEAD:
        return !c->tied;
    case MODEL_Q_BIAS:
    case MODEL_K_BIAS:
    case MODEL_V_BIAS:
        return c->attn_bias;
    case MODEL_O_BIAS:
        return c->o_bias;
    case MODEL_Q_NORM:
    case MODEL_K_NORM:
        return c->qk_norm;
    case MODEL_GATE_BIAS:
    case MODEL_UP_BIAS:
    case MODEL_DOWN_BIAS:
        return c->mlp_bias;
    default:
        return true;
    }
}

int model_shape(struct model_config *c, const char *name)
{
    static const struct {
        const char *name;
        struct model_config config;
    } shapes[] = {
        {"smollm2-135m",
         {.V = 49152,
          .C = 576,
          .L = 30,
          .H = 9,
          .K = 3,
          .D = 64,
          .F = 1536,
          .tied = true,
          .max_positions = 8192,
          .rope = {.theta = 100000}}},
        {"llama-1b",
         {.V = 128256,
          .C = 2048,
          .L = 16,
          .H = 32,
          .K = 8,
          .D = 64,
          .F = 8192,
          .tied = true,
          .max_positions = 131072,
          .rope = {.theta = 500000}}},
        {"llama-8b",
         {.V = 128256,
          .C = 4096,
          .L = 32,
          .H = 32,
          .K = 8,
          .D = 128,
          .F = 14336,
          .max_positions = 131072,
          .rope = {.theta = 500000}}},
    };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        if (strcmp(name, shapes[i].name))
            continue;
        *c = shapes[i].config;
        strcpy(c->arch, "llama");
        c->norm_eps = 1e-5f;
        c->rope.factor = 1;
        c->bos = -1;
        return 0;
    }
    log_error("no model shape is called \"%s\": smollm2-135m, llama-1b and llama-8b are",
              name);
    return -EINVAL;
}
