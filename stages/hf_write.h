/* Hugging Face model folders, written: all but the weights. */
#ifndef PENSTOCK_HF_WRITE_H
#define PENSTOCK_HF_WRITE_H

#include "stages/model.h"

struct json_t;

/* Writes config.json, generation_config.json and the tokenizer's files into a folder that
 * exists, so that weights under their names (model_weight_name) make it a model. Those of
 * a Hugging Face folder are its own; those of a GGUF file or of a shape are made from
 * what is known of it. dtype: of the weights, as config.json says it ("float32",
 * "bfloat16"). -ENOTSUP for a model that no such file can describe; -errno; one line. */
int hf_write(const char *dir, const struct model *m, const char *dtype);

/* The contents of config.json and of generation_config.json, released with json_decref.
 * `name` is for messages. */
int hf_config_json(struct json_t **out, const struct model_config *c, const char *dtype,
                   const char *name);
int hf_generation_json(struct json_t **out, const struct model_config *c,
                       const char *name);

#endif
