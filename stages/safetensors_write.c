/* The header's length, the header padded to 8 bytes, the tensors. */
#include "stages/safetensors_write.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/output.h"

struct safetensors_writer {
    struct output output;
    char *path;
    size_t left; /* bytes of data still to come */
    int err;
};

static const char *type_name(enum dtype type)
{
    return type == DTYPE_BF16 ? "BF16" : type == DTYPE_I32 ? "I32" : "F32";
}

/* Adds an item to the header and its bytes to *end. */
static int add_item(json_t *header, const struct safetensors_item *item, size_t *end)
{
    size_t n = 1, bytes, begin = *end;
    json_t *shape = json_array();
    int err = 0;

    for (int d = 0; d < item->n_dims && !err; d++) {
        err = size_mul(&n, n, item->dims[d]);
        json_array_append_new(shape, json_integer((json_int_t)item->dims[d]));
    }
    if (!err)
        err = dtype_bytes(&bytes, item->dtype, n);
    if (!err)
        err = size_add(end, begin, bytes);
    json_t *entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_name(item->dtype), "shape", shape,
                  "data_offsets", (json_int_t)begin, (json_int_t)*end);
    if (json_object_set_new(header, item->name, entry) && !err)
        err = -ENOMEM;
    return err;
}

static int write_header(struct safetensors_writer *w, json_t *header)
{
    char *text = json_dumps(header, JSON_COMPACT);
    size_t len = text ? strlen(text) : 0;
    uint64_t size = (len + 7) / 8 * 8;
    int err = 0;

    if (!text)
        return -ENOMEM;
    errno = 0;
    if (fwrite(&size, sizeof(size), 1, w->output.f) != 1 ||
        fwrite(text, 1, len, w->output.f) != len ||
        fwrite("        ", 1, size - len, w->output.f) != size - len)
        err = errno ? -errno : -EIO;
    free(text);
    return err;
}

static void writer_free(struct safetensors_writer *w)
{
    if (w)
        free(w->path);
    free(w);
}

int safetensors_writer_open(struct safetensors_writer **out, const char *path,
                            const struct safetensors_item *items, size_t n,
                            const char *metadata)
{
    struct safetensors_writer *w = calloc(1, sizeof(*w));
    json_t *header = json_object();
    int err = 0;

    if (w)
        w->path = strdup(path);
    if (!w || !w->path || !header)
        err = log_no_memory(path);
    if (!err)
        err = output_open(&w->output, w->path);
    if (err) {
        json_decref(header);
        writer_free(w);
        return err;
    }
    if (metadata)
        json_object_set_new(header, "__metadata__",
                            json_pack("{s:s}", "penstock", metadata));
    for (size_t i = 0; i < n && !w->err; i++)
        w->err = add_item(header, &items[i], &w->left);
    if (!w->err)
        w->err = write_header(w, header);
    json_decref(header);
    if (w->err)
        return safetensors_writer_close(w, true);
    *out = w;
    return 0;
}

int safetensors_writer_add(struct safetensors_writer *w, const void *data, size_t bytes)
{
    errno = 0;
    if (!w->err && (bytes > w->left || fwrite(data, 1, bytes, w->output.f) != bytes))
        w->err = errno ? -errno : -EIO;
    else
        w->left -= bytes;
    return w->err;
}

int safetensors_writer_close(struct safetensors_writer *w, bool keep)
{
    int err = 0;

    if (!keep)
        output_drop(&w->output);
    else
        err = output_close(&w->output, !w->err && w->left ? -EIO : w->err);
    writer_free(w);
    return err;
}
