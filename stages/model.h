/* A decoder model as files describe it: its sizes and where every weight lies. Weights
 * stay in the mapped file until a stage reads them. V vocabulary, C hidden, L layers, H
 * heads, K key/value heads, D head dimension, F intermediate. */
#ifndef PENSTOCK_MODEL_H
#define PENSTOCK_MODEL_H

#include "kernels/base.h"

/* Weights by role: id, layer weight or not, rows, columns (1: a vector of `rows`), name
 * in Hugging Face files, name in GGUF files (both without "model.layers.N." /
 * "blk.N."). */
#define MODEL_WEIGHT_LIST(X)                                                             \
    X(EMBED, false, V, C, "model.embed_tokens.weight", "token_embd.weight")              \
    X(OUT_NORM, false, C, 1, "model.norm.weight", "output_norm.weight")                  \
    X(HEAD, false, V, C, "lm_head.weight", "output.weight")                              \
    X(ATTN_NORM, true, C, 1, "input_layernorm.weight", "attn_norm.weight")               \
    X(Q, true, H *D, C, "self_attn.q_proj.weight", "attn_q.weight")                      \
    X(K, true, K *D, C, "self_attn.k_proj.weight", "attn_k.weight")                      \
    X(V, true, K *D, C, "self_attn.v_proj.weight", "attn_v.weight")                      \
    X(O, true, C, H *D, "self_attn.o_proj.weight", "attn_output.weight")                 \
    X(Q_BIAS, true, H *D, 1, "self_attn.q_proj.bias", "attn_q.bias")                     \
    X(K_BIAS, true, K *D, 1, "self_attn.k_proj.bias", "attn_k.bias")                     \
    X(V_BIAS, true, K *D, 1, "self_attn.v_proj.bias", "attn_v.bias")                     \
    X(O_BIAS, true, C, 1, "self_attn.o_proj.bias", "attn_output.bias")                   \
    X(Q_NORM, true, D, 1, "self_attn.q_norm.weight", "attn_q_norm.weight")               \
    X(K_NORM, true, D, 1, "self_attn.k_norm.weight", "attn_k_norm.weight")               \
    X(MLP_NORM, true, C, 1, "post_attention_layernorm.weight", "ffn_norm.weight")        \
    X(GATE, true, F, C, "mlp.gate_proj.weight", "ffn_gate.weight")                       \
    X(UP, true, F, C, "mlp.up_proj.weight", "ffn_up.weight")                             \
    X(DOWN, true, C, F, "mlp.down_proj.weight", "ffn_down.weight")                       \
    X(GATE_BIAS, true, F, 1, "mlp.gate_proj.bias", "ffn_gate.bias")                      \
    X(UP_BIAS, true, F, 1, "mlp.up_proj.bias", "ffn_up.bias")                            \
    X(DOWN_BIAS, true, C, 1, "mlp.down_proj.bias", "ffn_down.bias")

enum model_weight {
#define X(id, per_layer, rows, cols, hf, gguf) MODEL_##id,
    MODEL_WEIGHT_LIST(X)
#undef X
        MODEL_WEIGHT_COUNT
};

enum model_rope { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN };

#define MODEL_MAX_EOS 16

struct model_config {
    char arch[16]; /* llama, mistral, qwen2, qwen3 */
    size_t V, C, L, H, K, D, F;
    size_t max_positions; /* the longest context the model was made for */
    float norm_eps;
    bool tied; /* HEAD is EMBED */
    bool attn_bias, o_bias, mlp_bias, qk_norm;
    struct {
        enum model_rope kind;
        double theta, factor;
        double low_freq_factor, high_freq_factor; /* llama3 */
        double beta_fast, beta_slow;              /* yarn */
        double attention_factor;                  /* yarn, 0: follows from factor */
        double mscale, mscale_all_dim;            /* yarn, 0: absent */
        bool truncate;                            /* yarn: round the correction range */
        double original_positions;                /* llama3, yarn */
        const float *factors; /* (D / 2) divisors of the frequencies, or NULL */
    } rope;
    int n_eos;
    int32_t eos[MODEL_MAX_EOS];
    int32_t bos; /* -1: none */
};

struct gguf;
struct safetensors_set;

/* A weight's place in a file. */
struct model_tensor {
    enum dtype dtype;
    size_t rows, cols;   /* cols 1 for a vector */
    const uint8_t *data; /* rows * cols elements, row-major; NULL: the model has none */
    int permute_heads;   /* GGUF's interleaved q/k rows of that many heads; 0: none */
    char name[128];      /* as in the file, for messages */
};

struct model {
    struct model_config config;
    char *path;                    /* as given */
    char *dir;                     /* Hugging Face folder, or NULL */
    struct gguf *gguf;             /* GGUF file, or NULL */
    struct safetensors_set *files; /* safetensors of a folder, or NULL */
    struct model_tensor *tensors;  /* (L, MODEL_WEIGHT_COUNT), see model_tensor() */
    float *rope_factors;           /* owns config.rope.factors */
    bool random;                   /* weights are drawn when read: tensors have no data */
    uint64_t seed;
};

/* Opens a Hugging Face folder or a GGUF file: reads the configuration, maps the weights,
 * and checks that every weight the architecture needs is there, once, with the right
 * shape and within the file. Everything unsupported is refused by name before weights are
 * read. -ENOENT, -EINVAL, -ENOTSUP, -ENOMEM; one line logged. */
int model_open(struct model **out, const char *path);
void model_close(struct model *m);

/* A model of the given sizes without files: weights are random, the same for the same
 * seed (normal, 0.02; norms 1; biases 0). For benchmarks and tests. */
int model_random(struct model **out, const struct model_config *config, uint64_t seed);

/* Sizes by name, for model_random: "smollm2-135m", "llama-1b", "llama-8b". -EINVAL and
 * one line for another name. */
int model_shape(struct model_config *c, const char *name);

/* A random model of such a name, or of the sizes in a config.json or a folder that has
 * one. */
int model_open_shape(struct model **out, const char *shape, uint64_t seed);

/* The weight's place; data NULL if the model has none, or is random. HEAD of a tied model
 * is EMBED. */
const struct model_tensor *model_tensor(const struct model *m, enum model_weight weight,
                                        size_t layer);
bool model_has(const struct model *m, enum model_weight weight, size_t layer);

/* Reads rows [first, first + rows) as fp32 into out (rows, cols), dequantised and
 * unpermuted. -EDOM, naming tensor and row, if a value is NaN or infinite.
 * Thread-safe. */
int model_read(const struct model *m, float *out, enum model_weight weight, size_t layer,
               size_t first, size_t rows);

/* Rows and columns that the configuration demands of a weight (cols 1 for a vector). */
void model_weight_shape(const struct model_config *c, enum model_weight weight,
                        size_t *rows, size_t *cols);
/* The weight's name in Hugging Face files. */
void model_weight_name(char *name, size_t size, enum model_weight weight, size_t layer);
/* Whether this configuration has the weight at all. HEAD counts as absent when tied. */
bool model_weight_wanted(const struct model_config *c, enum model_weight weight);

/* Fills cos_sin (positions, D / 2, 2) in fp32: cos and sin of position * frequency, times
 * the attention factor of yarn; in the same fp32 arithmetic as transformers. */
void model_rope_table(const struct model_config *c, float *cos_sin, size_t positions);

/* n elements of any file type to fp32; n is a multiple of the type's block. */
void dequantize(float *out, enum dtype type, const void *data, size_t n);

#endif
