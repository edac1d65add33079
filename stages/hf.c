/* Hugging Face configurations. Absent keys mean what transformers' configuration class of
 * the architecture means by them; see its models/ARCH/configuration_ARCH.py. */
#include "stages/hf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/config.h"
#include "stages/doc.h"
#include "stages/file.h"

#define NAME_SHOWN 64

static const struct hf_family families[] = {
    {.type = "llama",
     .class = "LlamaForCausalLM",
     .positions = 2048,
     .bos = 1,
     .eos = 2,
     .bias_option = true,
     .mlp_option = true},
    {.type = "mistral",
     .class = "MistralForCausalLM",
     .kv_heads = 8,
     .positions = 131072,
     .bos = 1,
     .eos = 2,
     .window = true},
    {.type = "qwen2",
     .class = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .positions = 32768,
     .bos = -1,
     .eos = -1,
     .qkv_bias = true,
     .window_option = true},
    {.type = "qwen3",
     .class = "Qwen3ForCausalLM",
     .kv_heads = 32,
     .head_dim = 128,
     .positions = 32768,
     .bos = -1,
     .eos = -1,
     .bias_option = true,
     .qk_norm = true,
     .window_option = true},
};

/* Keys that change the arithmetic in ways that no stage knows, unless absent, null,
 * false, 0 or 1. */
static const char *const foreign_keys[] = {
    "quantization_config", "compression_config",      "num_local_experts",
    "num_experts",         "n_routed_experts",        "attn_logit_softcapping",
    "logit_scale",         "final_logit_softcapping", "embedding_multiplier",
    "residual_multiplier", "attention_multiplier",    "logits_scaling",
    "vision_config",       "use_parallel_residual",
};

static int unsupported(const char *name, const char *what, const char *value)
{
    char text[NAME_SHOWN];
    log_error("%s: %s \"%s\" is not supported", name, what,
              file_text(text, sizeof(text), value, strlen(value)));
    return -ENOTSUP;
}

const struct hf_family *hf_family_find(const char *type)
{
    for (size_t i = 0; i < ARRAY_LEN(families); i++)
        if (!strcmp(type, families[i].type))
            return &families[i];
    return NULL;
}

static int read_family(const struct hf_family **out, const json_t *o, const char *name)
{
    const char *type = NULL;
    char text[NAME_SHOWN];
    int err = doc_string(&type, o, "model_type", name);

    if (err)
        return err;
    if (!type) {
        log_error("%s: it has no \"model_type\"", name);
        return -EINVAL;
    }
    if ((*out = hf_family_find(type)))
        return 0;
    log_error(
        "%s: model type \"%s\" is not supported: llama, mistral, qwen2 and qwen3 are",
        name, file_text(text, sizeof(text), type, strlen(type)));
    return -ENOTSUP;
}

/* A folder may hold a model of the right type without a head for tokens. */
static int check_class(const json_t *o, const struct hf_family *f, const char *name)
{
    const json_t *classes = json_object_get(o, "architectures");
    const char *class = json_string_value(json_array_get(classes, 0));

    if (class && strcmp(class, f->class))
        return unsupported(name, "architecture", class);
    return 0;
}

static bool is_neutral(const json_t *value)
{
    if (json_is_number(value))
        return json_number_value(value) == 0 || json_number_value(value) == 1;
    return !value || json_is_null(value) || json_is_false(value);
}

static int check_foreign(const json_t *o, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(foreign_keys); i++) {
        const json_t *value = json_object_get(o, foreign_keys[i]);
        if (is_neutral(value))
            continue;
        const char *method = json_string_value(json_object_get(value, "quant_method"));
        if (method)
            return unsupported(name, "quantization method", method);
        log_error("%s: \"%s\" is not supported", name, foreign_keys[i]);
        return -ENOTSUP;
    }
    return 0;
}

static int check_activation(const json_t *o, const char *name)
{
    const char *act = "silu";
    int err = doc_string(&act, o, "hidden_act", name);

    if (err)
        return err;
    if (strcmp(act, "silu") && strcmp(act, "swish"))
        return unsupported(name, "hidden_act", act);
    return 0;
}

static int read_sizes(struct model_config *c, const json_t *o, const struct hf_family *f,
                      const char *name)
{
    const struct {
        const char *key;
        size_t *value, fallback; /* 0: the key must be there */
    } sizes[] = {
        {"vocab_size", &c->V, 0},
        {"hidden_size", &c->C, 0},
        {"intermediate_size", &c->F, 0},
        {"num_hidden_layers", &c->L, 0},
        {"num_attention_heads", &c->H, 0},
        {"num_key_value_heads", &c->K, SIZE_MAX},
        {"head_dim", &c->D, SIZE_MAX},
        {"max_position_embeddings", &c->max_positions, f->positions},
    };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        *sizes[i].value = sizes[i].fallback;
        int err = doc_size(sizes[i].value, o, sizes[i].key, 1, INT32_MAX, name);
        if (err)
            return err;
        if (*sizes[i].value)
            continue;
        log_error("%s: it has no \"%s\"", name, sizes[i].key);
        return -EINVAL;
    }
    if (c->K == SIZE_MAX) /* null means as many as heads, absent the class's own number */
        c->K = json_object_get(o, "num_key_value_heads") || !f->kv_heads ? c->H
                                                                         : f->kv_heads;
    if (c->D != SIZE_MAX)
        return 0;
    c->D = f->head_dim ? f->head_dim : c->C / c->H;
    if (f->head_dim || c->C % c->H == 0)
        return 0;
    log_error("%s: \"hidden_size\" %zu is no multiple of \"num_attention_heads\" %zu",
              name, c->C, c->H);
    return -EINVAL;
}

static int read_options(struct model_config *c, const json_t *o,
                        const struct hf_family *f, const char *name)
{
    double eps = 1e-6;
    bool attention_bias = false, mlp_bias = false;
    int err;

    if ((err = doc_number(&eps, o, "rms_norm_eps", name)) ||
        (err = doc_flag(&c->tied, o, "tie_word_embeddings", name)) ||
        (err = doc_flag(&attention_bias, o, "attention_bias", name)) ||
        (err = doc_flag(&mlp_bias, o, "mlp_bias", name)))
        return err;
    c->norm_eps = (float)eps;
    c->o_bias = f->bias_option && attention_bias;
    c->attn_bias = f->qkv_bias || c->o_bias;
    c->mlp_bias = f->mlp_option && mlp_bias;
    c->qk_norm = f->qk_norm;
    return 0;
}

/* "layer_types", where it is, names the attention of every layer. */
static int check_layer_types(const json_t *types, const char *name)
{
    const json_t *type;
    size_t i;

    json_array_foreach(types, i, type)
    {
        if (!json_is_string(type)) {
            log_error("%s: \"layer_types\" is no list of strings", name);
            return -EINVAL;
        }
        if (strcmp(json_string_value(type), "full_attention"))
            return unsupported(name, "attention type", json_string_value(type));
    }
    return 0;
}

/* A window that is never shorter than the context is none. */
static int check_window(const struct model_config *c, const json_t *o,
                        const struct hf_family *f, const char *name)
{
    const json_t *types = json_object_get(o, "layer_types");
    bool used = f->window;
    size_t window = json_object_get(o, "sliding_window") ? SIZE_MAX : 4096;
    size_t full_layers = 28;
    int err;

    if (f->window_option)
        if ((err = doc_flag(&used, o, "use_sliding_window", name)) ||
            (err = doc_size(&full_layers, o, "max_window_layers", 0, INT32_MAX, name)))
            return err;
    if ((err = check_layer_types(types, name)))
        return err;
    if (!used || (f->window_option && (json_is_array(types) || full_layers >= c->L)))
        return 0;
    if ((err = doc_size(&window, o, "sliding_window", 1, INT32_MAX, name)))
        return err;
    if (window >= c->max_positions)
        return 0;
    log_error("%s: \"sliding_window\" of %zu tokens is not supported", name, window);
    return -ENOTSUP;
}

static int rope_kind(enum model_rope *kind, const json_t *rope, const char *name)
{
    static const char *const kinds[] = {
        [ROPE_DEFAULT] = "default",
        [ROPE_LINEAR] = "linear",
        [ROPE_LLAMA3] = "llama3",
        [ROPE_YARN] = "yarn",
    };
    const char *type = "default";
    int err;

    if ((err = doc_string(&type, rope, "type", name)) ||
        (err = doc_string(&type, rope, "rope_type", name)))
        return err;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (!strcmp(type, kinds[i])) {
            *kind = (enum model_rope)i;
            return 0;
        }
    return unsupported(name, "RoPE type", type);
}

static int rope_numbers(struct model_config *c, const json_t *rope, const char *name)
{
    const struct {
        const char *key;
        double *value, fallback;
    } numbers[] = {
        {"rope_theta", &c->rope.theta, c->rope.theta},
        {"factor", &c->rope.factor, 0},
        {"low_freq_factor", &c->rope.low_freq_factor, 0},
        {"high_freq_factor", &c->rope.high_freq_factor, 0},
        {"beta_fast", &c->rope.beta_fast, 32},
        {"beta_slow", &c->rope.beta_slow, 1},
        {"attention_factor", &c->rope.attention_factor, 0},
        {"mscale", &c->rope.mscale, 0},
        {"mscale_all_dim", &c->rope.mscale_all_dim, 0},
        {"original_max_position_embeddings", &c->rope.original_positions,
         c->rope.original_positions},
    };
    c->rope.truncate = true;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
        *numbers[i].value = numbers[i].fallback;
        int err = doc_number(numbers[i].value, rope, numbers[i].key, name);
        if (err)
            return err;
    }
    if (c->rope.beta_fast == 0)
        c->rope.beta_fast = 32;
    if (c->rope.beta_slow == 0)
        c->rope.beta_slow = 1;
    return doc_flag(&c->rope.truncate, rope, "truncate", name);
}

/* The rotation covers whole heads. */
static int check_partial(const json_t *object, const char *name)
{
    double factor = 1;
    int err = doc_number(&factor, object, "partial_rotary_factor", name);

    if (err || factor == 1)
        return err;
    log_error("%s: \"partial_rotary_factor\" is not supported", name);
    return -ENOTSUP;
}

/* Values that a kind needs; where yarn's factor is absent, the two lengths give it. */
static int rope_defaults(struct model_config *c, const json_t *o, const json_t *rope,
                         const char *name)
{
    int err;

    if ((err = doc_number(&c->rope.original_positions, o,
                          "original_max_position_embeddings", name)) ||
        (err = check_partial(o, name)) || (err = check_partial(rope, name)))
        return err;
    if (c->rope.kind == ROPE_DEFAULT)
        c->rope.factor = 1;
    if (c->rope.kind == ROPE_YARN && c->rope.factor == 0 &&
        c->rope.original_positions > 0)
        c->rope.factor = (double)c->max_positions / c->rope.original_positions;
    return 0;
}

/* Old files have rope_theta beside rope_scaling, new ones all of it in
 * rope_parameters. */
static int read_rope(struct model_config *c, const json_t *o, const char *name)
{
    const json_t *rope = json_object_get(o, "rope_scaling");
    int err;

    if (!json_is_object(rope) || !json_object_size(rope))
        rope = json_object_get(o, "rope_parameters");
    if (rope && !json_is_null(rope) && !json_is_object(rope)) {
        log_error("%s: its RoPE settings are no object", name);
        return -EINVAL;
    }
    if (json_object_get(rope, "full_attention"))
        return unsupported(name, "RoPE settings by attention type", "full_attention");
    c->rope.theta = 10000;
    c->rope.original_positions = (double)c->max_positions;
    if ((err = doc_number(&c->rope.theta, o, "rope_theta", name)) ||
        (err = rope_kind(&c->rope.kind, rope, name)) ||
        (err = rope_numbers(c, rope, name)))
        return err;
    return rope_defaults(c, o, rope, name);
}

static int add_eos(struct model_config *c, const json_t *id, const char *name)
{
    if (!json_is_integer(id)) {
        log_error("%s: \"eos_token_id\" is neither an integer nor a list of them", name);
        return -EINVAL;
    }
    return config_add_eos(c, json_integer_value(id), name);
}

static int read_eos(struct model_config *c, const json_t *o, const char *name)
{
    const json_t *ids = json_object_get(o, "eos_token_id"), *id;
    size_t i;
    int err;

    if (!ids || json_is_null(ids))
        return 0;
    if (!json_is_array(ids))
        return add_eos(c, ids, name);
    json_array_foreach(ids, i, id)
    {
        if ((err = add_eos(c, id, name)))
            return err;
    }
    return 0;
}

static int read_ids(struct model_config *c, const json_t *o, const struct hf_family *f,
                    const char *name)
{
    size_t bos = SIZE_MAX;
    int err = doc_size(&bos, o, "bos_token_id", 0, INT32_MAX, name);

    if (err)
        return err;
    if (!json_object_get(o, "bos_token_id") && f->bos >= 0)
        bos = (size_t)f->bos;
    c->bos = bos < c->V ? (int32_t)bos : -1;
    if (!json_object_get(o, "eos_token_id") && f->eos >= 0)
        return config_add_eos(c, f->eos, name);
    return read_eos(c, o, name);
}

static int read_config(struct model_config *c, const json_t *o, const char *name)
{
    const struct hf_family *f;
    int err;

    *c = (struct model_config){.bos = -1};
    if ((err = read_family(&f, o, name)) || (err = check_class(o, f, name)) ||
        (err = check_foreign(o, name)) || (err = check_activation(o, name)) ||
        (err = read_sizes(c, o, f, name)) || (err = read_options(c, o, f, name)) ||
        (err = check_window(c, o, f, name)) || (err = read_rope(c, o, name)) ||
        (err = read_ids(c, o, f, name)))
        return err;
    strcpy(c->arch, f->type);
    return config_check(c, name);
}

int hf_config_parse(struct model_config *c, const char *json, size_t len,
                    const char *name)
{
    json_t *o;
    int err = doc_parse(&o, json, len, name);

    if (err)
        return err;
    err = read_config(c, o, name);
    json_decref(o);
    return err;
}

int hf_generation_parse(struct model_config *c, const char *json, size_t len,
                        const char *name)
{
    json_t *o;
    int err = doc_parse(&o, json, len, name);

    if (err)
        return err;
    err = read_eos(c, o, name);
    json_decref(o);
    return err;
}

/* Maps a file of the folder for one of the parsers above. */
static int
parse_file(struct model_config *c, const char *dir, const char *file, bool required,
           int (*parse)(struct model_config *, const char *, size_t, const char *))
{
    struct file_map map;
    char *path;
    int err = file_join(&path, dir, file);

    if (err)
        return err;
    if (!required && access(path, F_OK) < 0) {
        free(path);
        return 0;
    }
    err = file_map(&map, path);
    if (!err) {
        err = parse(c, (const char *)map.data, map.bytes, path);
        file_unmap(&map);
    }
    free(path);
    return err;
}

int hf_config_open(struct model_config *c, const char *dir)
{
    int err = parse_file(c, dir, "config.json", true, hf_config_parse);

    return err ? err
               : parse_file(c, dir, "generation_config.json", false, hf_generation_parse);
}
