/* Weights that are drawn instead of read. */
#ifndef PENSTOCK_RANDOM_H
#define PENSTOCK_RANDOM_H

#include "stages/model.h"

/* 64 bits that a counter picks: splitmix64 (Steele, Lea and Flood, 2014) at x. */
uint64_t random_mix(uint64_t x);

/* Rows [first, first + rows) of a weight of a random model, out (rows, cols): norms 1,
 * biases 0, else about normal with standard deviation 0.02. A value depends on seed,
 * weight, layer and place alone. */
void random_rows(float *out, const struct model *m, enum model_weight weight,
                 size_t layer, size_t first, size_t rows);

#endif
