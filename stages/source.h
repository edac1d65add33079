/* Where a model's weights lie: tensors of either kind of file, bound to their roles. */
#ifndef PENSTOCK_SOURCE_H
#define PENSTOCK_SOURCE_H

#include "stages/gguf.h"
#include "stages/model.h"

/* Fills the configuration from a GGUF file's metadata, and from which biases it has.
 * rope.factors is allocated (m->rope_factors). -EINVAL, -ENOTSUP for what no stage
 * computes, one line naming it. */
int source_gguf_config(struct model *m, const struct gguf *g, const char *name);

/* Finds every weight that m->config wants in m->gguf or m->files, and fills m->tensors.
 * One line and -EINVAL for one that is missing, misshapen or not asked for; -ENOTSUP for
 * its type. */
int source_bind(struct model *m, const char *name);

#endif
