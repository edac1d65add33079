/* Hugging Face model folders: config.json and generation_config.json. */
#ifndef PENSTOCK_HF_H
#define PENSTOCK_HF_H

#include "stages/model.h"

/* What differs between the supported architectures. */
struct hf_family {
    const char *type;  /* model_type */
    const char *class; /* in "architectures" */
    size_t kv_heads;   /* default; 0: as many as heads */
    size_t head_dim;   /* default; 0: hidden / heads */
    size_t positions;  /* default of max_position_embeddings */
    int32_t bos, eos;  /* defaults; -1: none */
    bool qkv_bias;     /* always */
    bool bias_option;  /* attention_bias counts, for o too */
    bool mlp_option;   /* mlp_bias counts */
    bool qk_norm;
    bool window_option; /* use_sliding_window decides whether sliding_window counts */
    bool window;        /* sliding_window counts, and is 4096 by default */
};

/* By model_type; NULL: not supported. */
const struct hf_family *hf_family_find(const char *type);

/* Fills the configuration from config.json with the defaults of transformers'
 * configuration classes; RoPE in both spellings. -EINVAL, -ENOTSUP for what no stage
 * computes, one line naming it. */
int hf_config_parse(struct model_config *c, const char *json, size_t len,
                    const char *name);

/* Adds the end ids of generation_config.json to a configuration. */
int hf_generation_parse(struct model_config *c, const char *json, size_t len,
                        const char *name);

/* Reads both files of a folder; generation_config.json may be absent. */
int hf_config_open(struct model_config *c, const char *dir);

#endif
