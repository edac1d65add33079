/* Hugging Face model folders: config.json and generation_config.json. */
#ifndef PENSTOCK_HF_H
#define PENSTOCK_HF_H

#include "stages/model.h"

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
