/* safetensors files, mapped and checked; one file, or the shards of a folder. */
#ifndef PENSTOCK_SAFETENSORS_H
#define PENSTOCK_SAFETENSORS_H

#include "stages/file.h"

#define SAFETENSORS_MAX_DIMS 8

struct safetensors_tensor {
    const char *name; /* terminated */
    const char *type; /* the element type as the file spells it */
    enum dtype dtype; /* DTYPE_COUNT: a type that nothing here computes with */
    int n_dims;
    size_t dims[SAFETENSORS_MAX_DIMS];
    const uint8_t *data; /* may be unaligned */
    size_t bytes;
};

struct json_t;

struct safetensors {
    struct file_map map;                /* empty if parsed from memory */
    struct json_t *header;              /* owns the names */
    struct safetensors_tensor *tensors; /* (n), sorted by name */
    size_t n;
};

/* Maps and checks a file: -EINVAL and one line for anything malformed. safetensors_parse
 * works on memory that outlives it. */
int safetensors_open(struct safetensors **out, const char *path);
int safetensors_parse(struct safetensors **out, const void *data, size_t bytes,
                      const char *name);
void safetensors_close(struct safetensors *s);

/* NULL if there is none. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *s,
                                                  const char *name);

/* The weights of a folder: model.safetensors, or what model.safetensors.index.json
 * lists. */
struct safetensors_set {
    struct safetensors **files; /* (n_files) */
    char **names;               /* (n_files) file names in the folder */
    size_t n_files;
    size_t n_tensors; /* of all files together */
};

int safetensors_set_open(struct safetensors_set **out, const char *dir);
void safetensors_set_close(struct safetensors_set *set);
const struct safetensors_tensor *safetensors_set_find(const struct safetensors_set *set,
                                                      const char *name);

#endif
