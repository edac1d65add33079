/* Configurations as Hugging Face files say them, for transformers 4 and 5: RoPE in the
 * older spelling, which both read. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernel.h"
#include "stages/hf.h"
#include "stages/hf_write.h"

/* A number that was rounded to fp32, as its shortest decimal. */
static double shortest(float value)
{
    char text[32];

    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    return strtod(text, NULL);
}

/* Whether two configurations turn by the same angles, up to the rounding of a file. */
static bool same_rope(const struct model_config *a, const struct model_config *b)
{
    float x[2][KERNEL_MAX_HEAD_DIM / 2][2], y[2][KERNEL_MAX_HEAD_DIM / 2][2];

    model_rope_table(a, x[0][0], 2);
    model_rope_table(b, y[0][0], 2);
    const float *p = x[0][0], *q = y[0][0];
    for (size_t i = a->D; i < 2 * a->D; i++)
        if (fabsf(p[i] - q[i]) > 1e-5f * fabsf(p[i]))
            return false;
    return true;
}

/* Llama 3's settings that divide the frequencies like the factors of a GGUF file. All its
 * models differ in one number, which is the last divisor. */
static int fit_factors(struct model_config *c, const char *name)
{
    struct model_config fit = *c;

    fit.rope.kind = ROPE_LLAMA3;
    fit.rope.factor = (double)shortest(c->rope.factors[c->D / 2 - 1]);
    fit.rope.low_freq_factor = 1;
    fit.rope.high_freq_factor = 4;
    fit.rope.original_positions = 8192;
    fit.rope.factors = NULL;
    if (c->rope.kind != ROPE_DEFAULT || !same_rope(c, &fit)) {
        log_error("%s: its RoPE factors are not those of Llama 3: no config.json can "
                  "describe them",
                  name);
        return -ENOTSUP;
    }
    *c = fit;
    return 0;
}

static json_t *yarn_json(const struct model_config *c)
{
    const struct {
        const char *key;
        double value;
    } options[] = {
        {"attention_factor", c->rope.attention_factor},
        {"mscale", c->rope.mscale},
        {"mscale_all_dim", c->rope.mscale_all_dim},
    };
    json_t *o =
        json_pack("{s:s, s:f, s:I, s:f, s:f, s:b}", "rope_type", "yarn", "factor",
                  c->rope.factor, "original_max_position_embeddings",
                  (json_int_t)c->rope.original_positions, "beta_fast", c->rope.beta_fast,
                  "beta_slow", c->rope.beta_slow, "truncate", c->rope.truncate);

    for (size_t i = 0; o && i < ARRAY_LEN(options); i++)
        if (options[i].value != 0)
            json_object_set_new(o, options[i].key, json_real(options[i].value));
    return o;
}

/* "rope_scaling". */
static json_t *rope_json(const struct model_config *c)
{
    switch (c->rope.kind) {
    case ROPE_LINEAR:
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", c->rope.factor);
    case ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor",
                         c->rope.factor, "low_freq_factor", c->rope.low_freq_factor,
                         "high_freq_factor", c->rope.high_freq_factor,
                         "original_max_position_embeddings",
                         (json_int_t)c->rope.original_positions);
    case ROPE_YARN:
        return yarn_json(c);
    default:
        return json_null();
    }
}

static json_t *id_json(int32_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

/* None, one, or a list. */
static json_t *eos_json(const struct model_config *c)
{
    if (c->n_eos < 2)
        return id_json(c->n_eos ? c->eos[0] : -1);
    json_t *list = json_array();
    for (int i = 0; i < c->n_eos; i++)
        json_array_append_new(list, json_integer(c->eos[i]));
    return list;
}

static json_t *sizes_json(const struct model_config *c, const struct hf_family *f)
{
    return json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "architectures", f->class,
        "model_type", f->type, "vocab_size", (json_int_t)c->V, "hidden_size",
        (json_int_t)c->C, "intermediate_size", (json_int_t)c->F, "num_hidden_layers",
        (json_int_t)c->L, "num_attention_heads", (json_int_t)c->H, "num_key_value_heads",
        (json_int_t)c->K, "head_dim", (json_int_t)c->D, "max_position_embeddings",
        (json_int_t)c->max_positions);
}

static json_t *config_json(const struct model_config *c, const struct hf_family *f,
                           const char *dtype)
{
    json_t *o = sizes_json(c, f);
    json_t *more = json_pack(
        "{s:s, s:f, s:f, s:o, s:b, s:o, s:o, s:s}", "hidden_act", "silu", "rms_norm_eps",
        shortest(c->norm_eps), "rope_theta", c->rope.theta, "rope_scaling", rope_json(c),
        "tie_word_embeddings", c->tied, "bos_token_id", id_json(c->bos), "eos_token_id",
        eos_json(c), "torch_dtype", dtype);
    bool bad = !o || !more || json_object_update(o, more);

    if (f->bias_option)
        bad |= json_object_set_new(o, "attention_bias", json_boolean(c->o_bias)) != 0;
    if (f->mlp_option)
        bad |= json_object_set_new(o, "mlp_bias", json_boolean(c->mlp_bias)) != 0;
    if (f->window)
        bad |= json_object_set_new(o, "sliding_window", json_null()) != 0;
    json_decref(more);
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

/* Which weights have biases and norms follows from few settings. */
static int check_options(const struct model_config *c, const struct hf_family *f,
                         const char *name)
{
    bool o_bias = f->bias_option && c->o_bias;

    if (c->o_bias == o_bias && c->attn_bias == (f->qkv_bias || o_bias) &&
        c->mlp_bias == (f->mlp_option && c->mlp_bias) && c->qk_norm == f->qk_norm)
        return 0;
    log_error("%s: no config.json of model type %s can describe its biases", name,
              f->type);
    return -ENOTSUP;
}

int hf_config_json(json_t **out, const struct model_config *c, const char *dtype,
                   const char *name)
{
    const struct hf_family *f = hf_family_find(c->arch);
    struct model_config plain = *c;
    int err = check_options(c, f, name);

    if (!err && c->rope.factors)
        err = fit_factors(&plain, name);
    if (err)
        return err;
    *out = config_json(&plain, f, dtype);
    return *out ? 0 : log_no_memory("config.json");
}

int hf_generation_json(json_t **out, const struct model_config *c, const char *name)
{
    *out = json_pack("{s:o, s:o}", "bos_token_id", id_json(c->bos), "eos_token_id",
                     eos_json(c));
    return *out ? 0 : log_no_memory(name);
}
