/* The documents of a data file. */
#ifndef PENSTOCK_DATA_READ_H
#define PENSTOCK_DATA_READ_H

#include "stages/data.h"

struct documents {
    int32_t *ids; /* (n_ids) of all, one behind the other */
    size_t n_ids, ids_cap;
    size_t *ends; /* (n) document i is ids [ends[i - 1], ends[i]) */
    size_t n, ends_cap;
    size_t cut; /* unpacked documents that were longer than T + 1 */
};

/* As data_open says. */
int documents_read(struct documents *d, const struct data_config *c, const char *text,
                   size_t len);
void documents_fini(struct documents *d);

#endif
