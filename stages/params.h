/* The weights of a stage as one flat array: every parameter's place in it. Matrices that kernels read as one
 * (q, k, v; gate, up) follow each other without a gap. Gradients and optimizer state lie in the same order. */
#ifndef PENSTOCK_PARAMS_H
#define PENSTOCK_PARAMS_H

#include "stages/model.h"

/* Kernels read whole cache lines: what does not continue a matrix begins on a multiple of this. */
#define PARAM_ALIGN 128 /* elements */

struct param {
    enum model_weight weight;
    size_t layer;      /* of the model; 0 for weights of no layer */
    size_t rows, cols; /* cols 1 for a vector */
    size_t offset;     /* elements from the start of the array */
};

struct params {
    struct param *list; /* (n), ascending offsets */
    size_t n;
    size_t elements; /* of the array, gaps included */
};

/* Parameters of layers first .. first + count - 1; embed: the embedding table, head: final norm and head, which is
 * the table in a tied model. -ENOMEM, -EOVERFLOW. */
int params_init(struct params *p, const struct model_config *c, size_t first,
                size_t count, bool embed, bool head);
void params_fini(struct params *p);

/* NULL if the stage has no such parameter. */
const struct param *params_find(const struct params *p, enum model_weight weight,
                                size_t layer);

#endif
