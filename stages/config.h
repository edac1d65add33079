/* What both kinds of files have in common when a configuration is read. */
#ifndef PENSTOCK_CONFIG_H
#define PENSTOCK_CONFIG_H

#include "stages/model.h"

/* Whether stages can compute with it: sizes within bounds, so that products of two of
 * them never overflow, and RoPE settings that make sense. -EINVAL, -ENOTSUP and one
 * line. */
int config_check(const struct model_config *c, const char *name);

/* Adds an end id unless it is there already; ids outside of the vocabulary are never
 * drawn and left out. -ENOTSUP and one line if there are too many. */
int config_add_eos(struct model_config *c, int64_t id, const char *name);

#endif
