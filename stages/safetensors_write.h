/* Writes safetensors files: beside the name first, then synced and renamed, so that a file is whole or not there. */
#ifndef PENSTOCK_SAFETENSORS_WRITE_H
#define PENSTOCK_SAFETENSORS_WRITE_H

#include "kernels/base.h"

struct safetensors_item {
    const char *name;
    enum dtype dtype; /* F32, BF16 or I32 */
    int n_dims;
    size_t dims[4];
};

struct safetensors_writer;

/* Begins a file with these tensors, in this order; metadata: a value for the key "penstock", or NULL. -errno after a
 * line. */
int safetensors_writer_open(struct safetensors_writer **out, const char *path,
                            const struct safetensors_item *items, size_t n,
                            const char *metadata);

/* The next bytes of the tensors' data, in any pieces. */
int safetensors_writer_add(struct safetensors_writer *w, const void *data, size_t bytes);

/* Ends the file: kept under its name if keep, all its data has been added and nothing failed; else nothing is left of
 * it. Frees w. -errno after a line. */
int safetensors_writer_close(struct safetensors_writer *w, bool keep);

#endif
