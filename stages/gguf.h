/* GGUF v2 and v3 files, mapped and checked: metadata and tensor directory. */
#ifndef PENSTOCK_GGUF_H
#define PENSTOCK_GGUF_H

#include "kernels/base.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

struct gguf_str {
    const char *data; /* in the mapped file, not terminated */
    size_t len;
};

struct gguf_kv {
    struct gguf_str key;
    enum gguf_type type; /* of the value, or of the items of an array */
    bool array;
    size_t count;        /* items; 1 for a scalar */
    const uint8_t *data; /* first item */
};

struct gguf_tensor {
    struct gguf_str name;
    int n_dims;
    size_t dims[4]; /* file order: dims[0] is the fastest */
    enum dtype dtype;
    const uint8_t *data;
    size_t bytes;
};

struct gguf {
    const uint8_t *map;
    size_t bytes;
    uint32_t version;
    struct gguf_kv *kv;
    size_t n_kv;
    struct gguf_tensor *tensors;
    size_t n_tensors;
};

/* Maps and checks a file; -EINVAL and one line for anything malformed. gguf_parse works
 * on memory that outlives it. */
int gguf_open(struct gguf **out, const char *path);
int gguf_parse(struct gguf **out, const void *data, size_t bytes, const char *name);
void gguf_close(struct gguf *g);

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Typed reads of item i; -EINVAL (silent) if the type does not fit or i is out of
 * range. */
int gguf_int(int64_t *out, const struct gguf_kv *kv, size_t i);
int gguf_float(double *out, const struct gguf_kv *kv, size_t i);
int gguf_bool(bool *out, const struct gguf_kv *kv);
int gguf_string(struct gguf_str *out, const struct gguf_kv *kv);
/* All strings of a string array: *out (kv->count), freed by the caller. */
int gguf_strings(struct gguf_str **out, const struct gguf_kv *kv);

#endif
