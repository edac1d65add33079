/* One safetensors file: eight bytes of header length, a JSON header, the tensors without
 * a gap. */
#include "stages/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/doc.h"

/* The format's own limit. */
#define MAX_HEADER_BYTES ((size_t)100 * 1000 * 1000)
#define NAME_SHOWN       96

/* Every element type of the format: bits per element, and ours where there is one. */
static const struct {
    const char *name;
    size_t bits;
    enum dtype dtype;
} types[] = {
    {"F32", 32, DTYPE_F32},          {"F16", 16, DTYPE_F16},
    {"BF16", 16, DTYPE_BF16},        {"I32", 32, DTYPE_I32},
    {"BOOL", 8, DTYPE_COUNT},        {"U8", 8, DTYPE_COUNT},
    {"I8", 8, DTYPE_COUNT},          {"I16", 16, DTYPE_COUNT},
    {"U16", 16, DTYPE_COUNT},        {"U32", 32, DTYPE_COUNT},
    {"I64", 64, DTYPE_COUNT},        {"U64", 64, DTYPE_COUNT},
    {"F64", 64, DTYPE_COUNT},        {"C64", 64, DTYPE_COUNT},
    {"F8_E4M3", 8, DTYPE_COUNT},     {"F8_E5M2", 8, DTYPE_COUNT},
    {"F8_E4M3FNUZ", 8, DTYPE_COUNT}, {"F8_E5M2FNUZ", 8, DTYPE_COUNT},
    {"F8_E8M0", 8, DTYPE_COUNT},     {"F4", 4, DTYPE_COUNT},
    {"F6_E2M3", 6, DTYPE_COUNT},     {"F6_E3M2", 6, DTYPE_COUNT},
};

static int malformed(const char *file, const char *tensor, const char *what)
{
    char text[NAME_SHOWN];
    log_error("%s: malformed safetensors file: tensor %s %s", file,
              file_text(text, sizeof(text), tensor, strlen(tensor)), what);
    return -EINVAL;
}

static int read_type(struct safetensors_tensor *t, const json_t *entry, size_t *bits,
                     const char *file)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));

    for (size_t i = 0; type && i < ARRAY_LEN(types); i++) {
        if (strcmp(type, types[i].name))
            continue;
        t->type = types[i].name;
        t->dtype = types[i].dtype;
        *bits = types[i].bits;
        return 0;
    }
    return malformed(file, t->name, "has no known dtype");
}

/* The shape, and the bytes that it takes. */
static int read_shape(struct safetensors_tensor *t, const json_t *entry, size_t bits,
                      const char *file)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t total = bits, i;
    const json_t *dim;

    if (!json_is_array(shape))
        return malformed(file, t->name, "has no shape");
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMS)
        return malformed(file, t->name, "has more than 8 dimensions");
    json_array_foreach(shape, i, dim)
    {
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return malformed(file, t->name, "has a shape that is not made of sizes");
        t->dims[i] = (size_t)json_integer_value(dim);
        if (size_mul(&total, total, t->dims[i]) < 0)
            return malformed(file, t->name, "is too large");
    }
    if (total % 8)
        return malformed(file, t->name, "does not fill its last byte");
    t->n_dims = (int)json_array_size(shape);
    t->bytes = total / 8;
    return 0;
}

/* data_offsets: begin and end in the data section. */
static int read_place(struct safetensors_tensor *t, const json_t *entry,
                      const uint8_t *data, size_t bytes, const char *file)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return malformed(file, t->name, "has no data_offsets");
    json_int_t from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from)
        return malformed(file, t->name, "has data_offsets that are no range");
    if ((size_t)to > bytes)
        return malformed(
            file, t->name,
            "reaches beyond the end of the file: it is cut short, fetch it again");
    if ((size_t)(to - from) != t->bytes)
        return malformed(file, t->name, "has not as many bytes as its shape asks for");
    t->data = data + from;
    return 0;
}

static int read_tensor(struct safetensors_tensor *t, const json_t *entry,
                       const uint8_t *data, size_t bytes, const char *file)
{
    size_t bits = 0;
    int err;

    if (!json_is_object(entry))
        return malformed(file, t->name, "is not described by an object");
    if ((err = read_type(t, entry, &bits, file)) ||
        (err = read_shape(t, entry, bits, file)))
        return err;
    return read_place(t, entry, data, bytes, file);
}

static int compare_name(const void *a, const void *b)
{
    return strcmp(((const struct safetensors_tensor *)a)->name,
                  ((const struct safetensors_tensor *)b)->name);
}

static int compare_data(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The format wants every byte to belong to exactly one tensor. */
static int check_layout(struct safetensors *s, const uint8_t *data, size_t bytes,
                        const char *file)
{
    const uint8_t *next = data;

    qsort(s->tensors, s->n, sizeof(*s->tensors), compare_data);
    for (size_t i = 0; i < s->n; i++) {
        if (s->tensors[i].data < next)
            return malformed(file, s->tensors[i].name, "overlaps another tensor");
        if (s->tensors[i].data > next)
            return malformed(file, s->tensors[i].name, "lies behind a gap");
        next += s->tensors[i].bytes;
    }
    if (next == data + bytes)
        return 0;
    log_error("%s: malformed safetensors file: %zu bytes after the last tensor", file,
              (size_t)(data + bytes - next));
    return -EINVAL;
}

static int read_tensors(struct safetensors *s, const uint8_t *data, size_t bytes,
                        const char *file)
{
    const char *key;
    json_t *entry;
    int err;

    s->tensors = calloc(json_object_size(s->header) + 1, sizeof(*s->tensors));
    if (!s->tensors)
        return file_no_memory(file);
    json_object_foreach(s->header, key, entry)
    {
        if (!strcmp(key, "__metadata__"))
            continue;
        s->tensors[s->n].name = key;
        if ((err = read_tensor(&s->tensors[s->n], entry, data, bytes, file)))
            return err;
        s->n++;
    }
    if ((err = check_layout(s, data, bytes, file)))
        return err;
    qsort(s->tensors, s->n, sizeof(*s->tensors), compare_name);
    return 0;
}

/* The header's length, which must lie within the file. */
static int header_bytes(size_t *out, const uint8_t *data, size_t bytes, const char *file)
{
    uint64_t n;

    if (bytes < sizeof(n)) {
        log_error("%s: malformed safetensors file: shorter than its own header", file);
        return -EINVAL;
    }
    memcpy(&n, data, sizeof(n));
    if (n > MAX_HEADER_BYTES || n > bytes - sizeof(n)) {
        log_error("%s: malformed safetensors file: a header of %llu bytes does not fit",
                  file, (unsigned long long)n);
        return -EINVAL;
    }
    *out = n;
    return 0;
}

int safetensors_parse(struct safetensors **out, const void *data, size_t bytes,
                      const char *name)
{
    struct safetensors *s;
    size_t n;
    int err;

    *out = NULL;
    if ((err = header_bytes(&n, data, bytes, name)))
        return err;
    if (!(s = calloc(1, sizeof(*s))))
        return file_no_memory(name);
    const char *text = (const char *)data + sizeof(uint64_t);
    err = doc_parse(&s->header, text, n, name);
    if (!err)
        err = read_tensors(s, (const uint8_t *)text + n, bytes - sizeof(uint64_t) - n,
                           name);
    if (err)
        safetensors_close(s);
    else
        *out = s;
    return err;
}

int safetensors_open(struct safetensors **out, const char *path)
{
    struct file_map map;

    *out = NULL;
    int err = file_map(&map, path);
    if (err)
        return err;
    err = safetensors_parse(out, map.data, map.bytes, path);
    if (err)
        file_unmap(&map);
    else
        (*out)->map = map;
    return err;
}

void safetensors_close(struct safetensors *s)
{
    if (!s)
        return;
    free(s->tensors);
    json_decref(s->header);
    file_unmap(&s->map);
    free(s);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *s,
                                                  const char *name)
{
    struct safetensors_tensor wanted = {.name = name};
    return bsearch(&wanted, s->tensors, s->n, sizeof(*s->tensors), compare_name);
}
