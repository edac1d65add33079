/* The configuration of a GGUF file: keys "ARCH.name" of its metadata. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/config.h"
#include "stages/file.h"
#include "stages/source.h"

#define KEY_MAX    128
#define NAME_SHOWN 64

struct reader {
    struct model *m;
    const struct gguf *g;
    const char *name; /* of the file, for messages */
};

static int wrong_type(const struct reader *r, const char *key, const char *type)
{
    log_error("%s: key %s is not %s", r->name, key, type);
    return -EINVAL;
}

static int unsupported(const struct reader *r, const char *what, struct gguf_str value)
{
    char text[NAME_SHOWN];
    log_error("%s: %s \"%s\" is not supported", r->name, what,
              file_text(text, sizeof(text), value.data, value.len));
    return -ENOTSUP;
}

static bool equals(struct gguf_str s, const char *text)
{
    return s.len == strlen(text) && !memcmp(s.data, text, s.len);
}

/* "ARCH.key" of the metadata, or NULL; full gets the whole key. */
static const struct gguf_kv *arch_key(const struct reader *r, char full[KEY_MAX],
                                      const char *key)
{
    snprintf(full, KEY_MAX, "%s.%s", r->m->config.arch, key);
    return gguf_find(r->g, full);
}

/* A size; where it is an array, one item a layer, they must be equal. Absent: *out stays,
 * which must not be 0. */
static int read_size(const struct reader *r, size_t *out, const char *key)
{
    char full[KEY_MAX];
    const struct gguf_kv *kv = arch_key(r, full, key);
    int64_t n, other;

    if (!kv && *out)
        return 0;
    if (!kv) {
        log_error("%s: it has no key %s", r->name, full);
        return -EINVAL;
    }
    if (gguf_int(&n, kv, 0) < 0)
        return wrong_type(r, full, "an integer");
    for (size_t i = 1; i < kv->count; i++) {
        if (gguf_int(&other, kv, i) < 0 || other == n)
            continue;
        log_error("%s: %s differs from layer to layer, which is not supported", r->name,
                  full);
        return -ENOTSUP;
    }
    if (n < 1 || n > INT32_MAX) {
        log_error("%s: %s is %lld, which is out of bounds", r->name, full, (long long)n);
        return -EINVAL;
    }
    *out = (size_t)n;
    return 0;
}

/* A number; absent: *out stays. */
static int read_number(const struct reader *r, double *out, const char *key)
{
    char full[KEY_MAX];
    const struct gguf_kv *kv = arch_key(r, full, key);

    if (!kv)
        return 0;
    if (kv->array || gguf_float(out, kv, 0) < 0 || !isfinite(*out))
        return wrong_type(r, full, "a number");
    return 0;
}

static int read_arch(const struct reader *r)
{
    static const char *const archs[] = {"llama", "qwen2", "qwen3"};
    const struct gguf_kv *kv = gguf_find(r->g, "general.architecture");
    struct gguf_str arch;

    if (!kv || gguf_string(&arch, kv) < 0) {
        log_error("%s: it has no key general.architecture", r->name);
        return -EINVAL;
    }
    for (size_t i = 0; i < ARRAY_LEN(archs); i++)
        if (equals(arch, archs[i])) {
            strcpy(r->m->config.arch, archs[i]);
            return 0;
        }
    char text[NAME_SHOWN];
    log_error(
        "%s: architecture \"%s\" is not supported: llama (with mistral), qwen2 and qwen3 "
        "are",
        r->name, file_text(text, sizeof(text), arch.data, arch.len));
    return -ENOTSUP;
}

/* Files that hold a part of a model, or something else. */
static int check_kind(const struct reader *r)
{
    const struct gguf_kv *type = gguf_find(r->g, "general.type");
    const struct gguf_kv *split = gguf_find(r->g, "split.count");
    struct gguf_str kind;
    int64_t parts;

    if (type && !gguf_string(&kind, type) && !equals(kind, "model"))
        return unsupported(r, "a file of type", kind);
    if (split && !gguf_int(&parts, split, 0) && parts > 1) {
        log_error(
            "%s: one of %lld parts of a split file: merge them with llama-gguf-split",
            r->name, (long long)parts);
        return -ENOTSUP;
    }
    return 0;
}

/* Keys that change the arithmetic in ways that no stage knows, unless they are 0 or 1. */
static int check_foreign(const struct reader *r)
{
    static const char *const keys[] = {
        "expert_count",
        "logit_scale",
        "residual_scale",
        "embedding_scale",
        "attention.scale",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "attention.max_alibi_bias",
        "attention.clamp_kqv",
        "rope.scaling.yarn_log_multiplier",
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        double value = 0;
        int err = read_number(r, &value, keys[i]);
        if (err)
            return err;
        if (value == 0 || value == 1)
            continue;
        log_error("%s: key %s.%s is not supported", r->name, r->m->config.arch, keys[i]);
        return -ENOTSUP;
    }
    return 0;
}

/* The vocabulary is as large as the embedding; the tokens may be fewer, not more. */
static int read_vocabulary(const struct reader *r)
{
    const struct gguf_tensor *embed = gguf_find_tensor(r->g, "token_embd.weight");
    const struct gguf_kv *tokens = gguf_find(r->g, "tokenizer.ggml.tokens");

    if (!embed || embed->n_dims < 2) {
        log_error("%s: it has no tensor token_embd.weight of two dimensions", r->name);
        return -EINVAL;
    }
    r->m->config.V = embed->dims[1];
    if (!tokens || tokens->count <= embed->dims[1])
        return 0;
    log_error("%s: %zu tokens, but an embedding of %zu", r->name, tokens->count,
              embed->dims[1]);
    return -EINVAL;
}

/* Sizes of a head: one for keys and values, and all of it rotated. */
static int read_head_dim(const struct reader *r)
{
    struct model_config *c = &r->m->config;
    size_t values, rotated;
    int err;

    c->D = c->C % c->H ? 0 : c->C / c->H;
    if ((err = read_size(r, &c->D, "attention.key_length")))
        return err;
    values = rotated = c->D;
    if ((err = read_size(r, &values, "attention.value_length")) ||
        (err = read_size(r, &rotated, "rope.dimension_count")))
        return err;
    if (values == c->D && rotated == c->D)
        return 0;
    log_error("%s: keys of %zu, values of %zu and a rotation of %zu elements are not "
              "supported: "
              "they must be equal",
              r->name, c->D, values, rotated);
    return -ENOTSUP;
}

static int read_sizes(const struct reader *r)
{
    struct model_config *c = &r->m->config;
    double eps = -1, window = 0;
    int err;

    if ((err = read_size(r, &c->L, "block_count")) ||
        (err = read_size(r, &c->C, "embedding_length")) ||
        (err = read_size(r, &c->F, "feed_forward_length")) ||
        (err = read_size(r, &c->H, "attention.head_count")) ||
        (err = read_size(r, &c->max_positions, "context_length")))
        return err;
    c->K = c->H;
    if ((err = read_size(r, &c->K, "attention.head_count_kv")) ||
        (err = read_head_dim(r)) ||
        (err = read_number(r, &eps, "attention.layer_norm_rms_epsilon")) ||
        (err = read_number(r, &window, "attention.sliding_window")))
        return err;
    if (eps < 0) {
        log_error("%s: it has no key %s.attention.layer_norm_rms_epsilon", r->name,
                  c->arch);
        return -EINVAL;
    }
    c->norm_eps = (float)eps;
    if (window <= 0 || window >= (double)c->max_positions)
        return 0;
    log_error("%s: a sliding window of %.0f tokens is not supported", r->name, window);
    return -ENOTSUP;
}

/* A factor without a type means linear scaling. */
static int rope_kind(const struct reader *r)
{
    struct model_config *c = &r->m->config;
    char full[KEY_MAX];
    const struct gguf_kv *kv = arch_key(r, full, "rope.scaling.type");
    struct gguf_str kind = {"linear", 6};

    if (kv && gguf_string(&kind, kv) < 0)
        return wrong_type(r, full, "a string");
    if (equals(kind, "none"))
        c->rope.kind = ROPE_DEFAULT;
    else if (equals(kind, "linear"))
        c->rope.kind = c->rope.factor == 1 ? ROPE_DEFAULT : ROPE_LINEAR;
    else if (equals(kind, "yarn"))
        c->rope.kind = ROPE_YARN;
    else
        return unsupported(r, "RoPE type", kind);
    return 0;
}

/* yarn's factor of cos and sin: the file's own comes on top of the usual one. */
static int read_yarn(const struct reader *r)
{
    struct model_config *c = &r->m->config;
    double attn = 1, yarn_attn = 1, ext = 1;
    int err;

    c->rope.truncate = true;
    if ((err = read_number(r, &c->rope.original_positions,
                           "rope.scaling.original_context_length")) ||
        (err = read_number(r, &attn, "rope.scaling.attn_factor")) ||
        (err = read_number(r, &yarn_attn, "rope.scaling.yarn_attn_factor")) ||
        (err = read_number(r, &ext, "rope.scaling.yarn_ext_factor")) ||
        (err = read_number(r, &c->rope.beta_fast, "rope.scaling.yarn_beta_fast")) ||
        (err = read_number(r, &c->rope.beta_slow, "rope.scaling.yarn_beta_slow")))
        return err;
    if (ext != 1) {
        log_error("%s: key %s.rope.scaling.yarn_ext_factor other than 1 is not supported",
                  r->name, c->arch);
        return -ENOTSUP;
    }
    attn *= yarn_attn;
    if (attn != 1 && c->rope.factor > 0)
        c->rope.attention_factor =
            attn * (c->rope.factor > 1 ? 0.1 * log(c->rope.factor) + 1 : 1);
    return 0;
}

/* Llama 3's scaling comes as a tensor of divisors. */
static int read_factors(const struct reader *r)
{
    const struct gguf_tensor *t = gguf_find_tensor(r->g, "rope_freqs.weight");
    size_t n = r->m->config.D / 2;

    if (!t)
        return 0;
    if (t->dtype != DTYPE_F32 || t->n_dims != 1 || t->dims[0] != n) {
        log_error("%s: tensor rope_freqs.weight does not hold %zu F32 elements", r->name,
                  n);
        return -EINVAL;
    }
    r->m->rope_factors = malloc((n + 1) * sizeof(float));
    if (!r->m->rope_factors)
        return file_no_memory(r->name);
    dequantize(r->m->rope_factors, t->dtype, t->data, n);
    for (size_t i = 0; i < n; i++) {
        if (isfinite(r->m->rope_factors[i]) && r->m->rope_factors[i] > 0)
            continue;
        log_error("%s: tensor rope_freqs.weight: element %zu is no divisor", r->name, i);
        return -EDOM;
    }
    r->m->config.rope.factors = r->m->rope_factors;
    return 0;
}

static int read_rope(const struct reader *r)
{
    struct model_config *c = &r->m->config;
    int err;

    c->rope.theta = 10000;
    c->rope.factor = 1;
    c->rope.original_positions = (double)c->max_positions;
    c->rope.beta_fast = 32;
    c->rope.beta_slow = 1;
    if ((err = read_number(r, &c->rope.theta, "rope.freq_base")) ||
        (err = read_number(r, &c->rope.factor, "rope.scale_linear")) ||
        (err = read_number(r, &c->rope.factor, "rope.scaling.factor")))
        return err;
    if (c->rope.factor == 0)
        c->rope.factor = 1;
    if ((err = rope_kind(r)))
        return err;
    if (c->rope.kind == ROPE_YARN && (err = read_yarn(r)))
        return err;
    return read_factors(r);
}

static int read_ids(const struct reader *r)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    struct model_config *c = &r->m->config;
    const struct gguf_kv *bos = gguf_find(r->g, "tokenizer.ggml.bos_token_id");
    int64_t id;

    if (bos && gguf_int(&id, bos, 0) < 0)
        return wrong_type(r, "tokenizer.ggml.bos_token_id", "an integer");
    c->bos = bos && id >= 0 && (size_t)id < c->V ? (int32_t)id : -1;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        const struct gguf_kv *kv = gguf_find(r->g, ends[i]);
        if (kv && gguf_int(&id, kv, 0) < 0)
            return wrong_type(r, ends[i], "an integer");
        int err = kv ? config_add_eos(c, id, r->name) : 0;
        if (err)
            return err;
    }
    return 0;
}

static bool has(const struct reader *r, const char *tensor)
{
    return gguf_find_tensor(r->g, tensor) != NULL;
}

/* What the metadata does not say, the first layer does; the others must agree. */
static void read_options(const struct reader *r)
{
    struct model_config *c = &r->m->config;

    c->tied = !has(r, "output.weight");
    c->attn_bias = !strcmp(c->arch, "qwen2") || has(r, "blk.0.attn_q.bias");
    c->o_bias = has(r, "blk.0.attn_output.bias");
    c->mlp_bias = has(r, "blk.0.ffn_gate.bias");
    c->qk_norm = !strcmp(c->arch, "qwen3");
}

int source_gguf_config(struct model *m, const struct gguf *g, const char *name)
{
    struct reader r = {.m = m, .g = g, .name = name};
    int err;

    m->config = (struct model_config){.bos = -1};
    if ((err = read_arch(&r)) || (err = check_kind(&r)) || (err = check_foreign(&r)) ||
        (err = read_vocabulary(&r)) || (err = read_sizes(&r)) || (err = read_rope(&r)) ||
        (err = read_ids(&r)))
        return err;
    read_options(&r);
    return config_check(&m->config, name);
}
