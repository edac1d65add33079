/* GGUF files: metadata and tensor directory, checked before anything is used. */
#include "stages/gguf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"

_Static_assert(sizeof(size_t) == 8, "files larger than 4 GiB are mapped");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read in place");

/* The least bytes of one metadata entry and of one tensor entry: bound for counts. */
#define KV_MIN_BYTES     (8 + 4 + 1)
#define TENSOR_MIN_BYTES (8 + 4 + 8 + 4 + 8)
#define MAX_ALIGNMENT    ((size_t)1 << 20)
#define NAME_SHOWN       96

static const uint8_t type_bytes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
    [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

/* Tensor types by their number in the file. DTYPE_COUNT: known by name, not supported. */
static const struct {
    const char *name;
    enum dtype dtype;
} tensor_types[] = {
    [0] = {"F32", DTYPE_F32},           [1] = {"F16", DTYPE_F16},
    [2] = {"Q4_0", DTYPE_Q4_0},         [3] = {"Q4_1", DTYPE_Q4_1},
    [4] = {"Q4_2", DTYPE_COUNT},        [5] = {"Q4_3", DTYPE_COUNT},
    [6] = {"Q5_0", DTYPE_Q5_0},         [7] = {"Q5_1", DTYPE_Q5_1},
    [8] = {"Q8_0", DTYPE_Q8_0},         [9] = {"Q8_1", DTYPE_COUNT},
    [10] = {"Q2_K", DTYPE_COUNT},       [11] = {"Q3_K", DTYPE_COUNT},
    [12] = {"Q4_K", DTYPE_Q4_K},        [13] = {"Q5_K", DTYPE_Q5_K},
    [14] = {"Q6_K", DTYPE_Q6_K},        [15] = {"Q8_K", DTYPE_COUNT},
    [16] = {"IQ2_XXS", DTYPE_COUNT},    [17] = {"IQ2_XS", DTYPE_COUNT},
    [18] = {"IQ3_XXS", DTYPE_COUNT},    [19] = {"IQ1_S", DTYPE_COUNT},
    [20] = {"IQ4_NL", DTYPE_COUNT},     [21] = {"IQ3_S", DTYPE_COUNT},
    [22] = {"IQ2_S", DTYPE_COUNT},      [23] = {"IQ4_XS", DTYPE_COUNT},
    [24] = {"I8", DTYPE_COUNT},         [25] = {"I16", DTYPE_COUNT},
    [26] = {"I32", DTYPE_COUNT},        [27] = {"I64", DTYPE_COUNT},
    [28] = {"F64", DTYPE_COUNT},        [29] = {"IQ1_M", DTYPE_COUNT},
    [30] = {"BF16", DTYPE_BF16},        [31] = {"Q4_0_4_4", DTYPE_COUNT},
    [32] = {"Q4_0_4_8", DTYPE_COUNT},   [33] = {"Q4_0_8_8", DTYPE_COUNT},
    [34] = {"TQ1_0", DTYPE_COUNT},      [35] = {"TQ2_0", DTYPE_COUNT},
    [36] = {"IQ4_NL_4_4", DTYPE_COUNT}, [37] = {"IQ4_NL_4_8", DTYPE_COUNT},
    [38] = {"IQ4_NL_8_8", DTYPE_COUNT}, [39] = {"MXFP4", DTYPE_COUNT},
    [40] = {"NVFP4", DTYPE_COUNT},      [41] = {"Q1_0", DTYPE_COUNT},
};

struct cursor {
    const uint8_t *data; /* (bytes) */
    size_t at, bytes;
    const char *name; /* of the file, for messages */
};

static int malformed(const struct cursor *c, const char *what)
{
    log_error("%s: malformed GGUF file: %s (byte %zu)", c->name, what, c->at);
    return -EINVAL;
}

static int malformed_entry(const struct cursor *c, const char *kind,
                           struct gguf_str entry, const char *what)
{
    char text[NAME_SHOWN];
    log_error("%s: malformed GGUF file: %s %s %s", c->name, kind,
              file_text(text, sizeof(text), entry.data, entry.len), what);
    return -EINVAL;
}

static size_t left(const struct cursor *c)
{
    return c->bytes - c->at;
}

static int take(struct cursor *c, void *out, size_t n)
{
    if (n > left(c))
        return malformed(c, "it ends within its header");
    memcpy(out, c->data + c->at, n);
    c->at += n;
    return 0;
}

static int take_string(struct cursor *c, struct gguf_str *s)
{
    uint64_t len;
    int err = take(c, &len, sizeof(len));

    if (err)
        return err;
    if (len > left(c))
        return malformed(c, "a string reaches beyond the end of the file");
    *s = (struct gguf_str){(const char *)c->data + c->at, len};
    c->at += len;
    return 0;
}

static int take_values(struct cursor *c, struct gguf_kv *kv)
{
    struct gguf_str s;

    kv->data = c->data + c->at;
    if (kv->type == GGUF_STRING) {
        for (size_t i = 0; i < kv->count; i++)
            if (take_string(c, &s) < 0)
                return -EINVAL;
        return 0;
    }
    if (kv->count > left(c) / type_bytes[kv->type])
        return malformed_entry(c, "array", kv->key, "reaches beyond the end of the file");
    c->at += kv->count * type_bytes[kv->type];
    return 0;
}

static int take_kv(struct cursor *c, struct gguf_kv *kv)
{
    uint32_t type;
    uint64_t count = 1;
    int err;

    if ((err = take_string(c, &kv->key)) || (err = take(c, &type, sizeof(type))))
        return err;
    kv->array = type == GGUF_ARRAY;
    if (kv->array)
        if ((err = take(c, &type, sizeof(type))) ||
            (err = take(c, &count, sizeof(count))))
            return err;
    if (type >= GGUF_TYPE_COUNT || type == GGUF_ARRAY)
        return malformed_entry(c, "key", kv->key, "has a value of unknown type");
    kv->type = (enum gguf_type)type;
    kv->count = count;
    return take_values(c, kv);
}

/* The element type of a tensor from its number in the file. */
static int tensor_type(const struct cursor *c, struct gguf_tensor *t, uint32_t type)
{
    char text[NAME_SHOWN];

    if (type < ARRAY_LEN(tensor_types) && tensor_types[type].dtype != DTYPE_COUNT) {
        t->dtype = tensor_types[type].dtype;
        return 0;
    }
    file_text(text, sizeof(text), t->name.data, t->name.len);
    if (type < ARRAY_LEN(tensor_types))
        log_error("%s: tensor %s has type %s, which is not supported", c->name, text,
                  tensor_types[type].name);
    else
        log_error("%s: tensor %s has type %u, which is unknown", c->name, text, type);
    return -ENOTSUP;
}

/* Bytes of a tensor from its shape: whole rows of dims[0] elements. */
static int tensor_bytes(const struct cursor *c, struct gguf_tensor *t)
{
    int err = dtype_bytes(&t->bytes, t->dtype, t->dims[0]);

    for (int i = 1; i < t->n_dims && !err; i++)
        err = size_mul(&t->bytes, t->bytes, t->dims[i]);
    if (err == -EINVAL)
        return malformed_entry(c, "tensor", t->name,
                               "has rows that are no multiple of its type's block");
    if (err)
        return malformed_entry(c, "tensor", t->name, "is too large");
    return 0;
}

/* One entry of the directory; *offset is relative to the data section. */
static int take_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset)
{
    uint32_t n_dims, type;
    int err;

    if ((err = take_string(c, &t->name)) || (err = take(c, &n_dims, sizeof(n_dims))))
        return err;
    if (n_dims < 1 || n_dims > ARRAY_LEN(t->dims))
        return malformed_entry(c, "tensor", t->name, "has not 1 to 4 dimensions");
    t->n_dims = (int)n_dims;
    for (int i = 0; i < t->n_dims; i++) {
        uint64_t dim;
        if ((err = take(c, &dim, sizeof(dim))))
            return err;
        if (!dim)
            return malformed_entry(c, "tensor", t->name, "has an empty dimension");
        t->dims[i] = dim;
    }
    if ((err = take(c, &type, sizeof(type))) ||
        (err = take(c, offset, sizeof(*offset))) || (err = tensor_type(c, t, type)))
        return err;
    return tensor_bytes(c, t);
}

static int compare_str(struct gguf_str a, struct gguf_str b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    int order = n ? memcmp(a.data, b.data, n) : 0;
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_kv(const void *a, const void *b)
{
    return compare_str(((const struct gguf_kv *)a)->key,
                       ((const struct gguf_kv *)b)->key);
}

static int compare_tensor(const void *a, const void *b)
{
    return compare_str(((const struct gguf_tensor *)a)->name,
                       ((const struct gguf_tensor *)b)->name);
}

static int compare_data(const void *a, const void *b)
{
    const uint8_t *x = (*(const struct gguf_tensor *const *)a)->data;
    const uint8_t *y = (*(const struct gguf_tensor *const *)b)->data;
    return (x > y) - (x < y);
}

/* Sorts by name, for gguf_find, and refuses duplicates. */
static int sort_kv(const struct cursor *c, struct gguf *g)
{
    qsort(g->kv, g->n_kv, sizeof(*g->kv), compare_kv);
    for (size_t i = 1; i < g->n_kv; i++)
        if (!compare_kv(&g->kv[i - 1], &g->kv[i]))
            return malformed_entry(c, "key", g->kv[i].key, "occurs twice");
    return 0;
}

static int sort_tensors(const struct cursor *c, struct gguf *g)
{
    qsort(g->tensors, g->n_tensors, sizeof(*g->tensors), compare_tensor);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (!compare_tensor(&g->tensors[i - 1], &g->tensors[i]))
            return malformed_entry(c, "tensor", g->tensors[i].name, "occurs twice");
    return 0;
}

static int check_overlap(const struct cursor *c, const struct gguf *g)
{
    const struct gguf_tensor **by_data = calloc(g->n_tensors + 1, sizeof(*by_data));
    int err = 0;

    if (!by_data)
        return file_no_memory(c->name);
    for (size_t i = 0; i < g->n_tensors; i++)
        by_data[i] = &g->tensors[i];
    qsort(by_data, g->n_tensors, sizeof(*by_data), compare_data);
    for (size_t i = 1; i < g->n_tensors && !err; i++)
        if ((size_t)(by_data[i]->data - by_data[i - 1]->data) < by_data[i - 1]->bytes)
            err =
                malformed_entry(c, "tensor", by_data[i]->name, "overlaps another tensor");
    free(by_data);
    return err;
}

static int alignment(const struct cursor *c, const struct gguf *g, size_t *out)
{
    const struct gguf_kv *kv = gguf_find(g, "general.alignment");
    int64_t n = 32;

    if (kv && (kv->array || gguf_int(&n, kv, 0) < 0))
        return malformed(c, "general.alignment is not an integer");
    if (n < 8 || (size_t)n > MAX_ALIGNMENT || (n & (n - 1)))
        return malformed(c, "general.alignment is no power of two from 8 on");
    *out = (size_t)n;
    return 0;
}

static int take_metadata(struct cursor *c, struct gguf *g)
{
    if (g->n_kv > left(c) / KV_MIN_BYTES)
        return malformed(c, "it counts more keys than fit into the file");
    g->kv = calloc(g->n_kv + 1, sizeof(*g->kv));
    if (!g->kv)
        return file_no_memory(c->name);
    for (size_t i = 0; i < g->n_kv; i++) {
        int err = take_kv(c, &g->kv[i]);
        if (err)
            return err;
    }
    return sort_kv(c, g);
}

/* Where a tensor lies: its offset counts from the end of the directory, aligned. */
static int place_tensor(const struct cursor *c, struct gguf_tensor *t, uint64_t offset,
                        size_t align)
{
    size_t base = (c->at + align - 1) & ~(align - 1);

    if (offset % align)
        return malformed_entry(c, "tensor", t->name, "is not aligned");
    if (base > c->bytes || offset > c->bytes - base ||
        t->bytes > c->bytes - base - offset)
        return malformed_entry(
            c, "tensor", t->name,
            "reaches beyond the end of the file: it is cut short, fetch it again");
    t->data = c->data + base + offset;
    return 0;
}

static int take_tensors(struct cursor *c, struct gguf *g)
{
    size_t align;
    int err = alignment(c, g, &align);

    if (err)
        return err;
    if (g->n_tensors > left(c) / TENSOR_MIN_BYTES)
        return malformed(c, "it counts more tensors than fit into the file");
    g->tensors = calloc(g->n_tensors + 1, sizeof(*g->tensors));
    uint64_t *offsets = calloc(g->n_tensors + 1, sizeof(*offsets));
    if (!g->tensors || !offsets)
        err = file_no_memory(c->name);
    for (size_t i = 0; i < g->n_tensors && !err; i++)
        err = take_tensor(c, &g->tensors[i], &offsets[i]);
    for (size_t i = 0; i < g->n_tensors && !err; i++)
        err = place_tensor(c, &g->tensors[i], offsets[i], align);
    free(offsets);
    if (err || (err = sort_tensors(c, g)))
        return err;
    return check_overlap(c, g);
}

static int take_header(struct cursor *c, struct gguf *g)
{
    char magic[4];
    uint64_t n_tensors, n_kv;

    if (c->bytes < sizeof(magic) || memcmp(c->data, "GGUF", sizeof(magic))) {
        log_error("%s: not a GGUF file", c->name);
        return -EINVAL;
    }
    if (take(c, magic, sizeof(magic)) || take(c, &g->version, sizeof(g->version)))
        return -EINVAL;
    if (g->version == __builtin_bswap32(2) || g->version == __builtin_bswap32(3)) {
        log_error("%s: big-endian GGUF files are not supported", c->name);
        return -ENOTSUP;
    }
    if (g->version != 2 && g->version != 3) {
        log_error("%s: GGUF version %u is not supported (2 and 3 are)", c->name,
                  g->version);
        return -ENOTSUP;
    }
    if (take(c, &n_tensors, sizeof(n_tensors)) || take(c, &n_kv, sizeof(n_kv)))
        return -EINVAL;
    g->n_tensors = n_tensors;
    g->n_kv = n_kv;
    return 0;
}

int gguf_parse(struct gguf **out, const void *data, size_t bytes, const char *name)
{
    struct cursor c = {.data = data, .bytes = bytes, .name = name};
    struct gguf *g = calloc(1, sizeof(*g));
    int err;

    *out = NULL;
    if (!g)
        return file_no_memory(name);
    if ((err = take_header(&c, g)) || (err = take_metadata(&c, g)) ||
        (err = take_tensors(&c, g))) {
        gguf_close(g);
        return err;
    }
    *out = g;
    return 0;
}

int gguf_open(struct gguf **out, const char *path)
{
    struct file_map map;

    *out = NULL;
    int err = file_map(&map, path);
    if (err)
        return err;
    err = gguf_parse(out, map.data, map.bytes, path);
    if (err) {
        file_unmap(&map);
        return err;
    }
    (*out)->map = map.data;
    (*out)->bytes = map.bytes;
    return 0;
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    struct file_map map = {g->map, g->bytes};
    file_unmap(&map);
    free(g->kv);
    free(g->tensors);
    free(g);
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key)
{
    struct gguf_kv wanted = {.key = {key, strlen(key)}};
    return bsearch(&wanted, g->kv, g->n_kv, sizeof(*g->kv), compare_kv);
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name)
{
    struct gguf_tensor wanted = {.name = {name, strlen(name)}};
    return bsearch(&wanted, g->tensors, g->n_tensors, sizeof(*g->tensors),
                   compare_tensor);
}
