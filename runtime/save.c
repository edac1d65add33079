/* Files that are whole or as they were. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/penstock.h"
#include "stages/output.h"
#include "stages/safetensors_write.h"

int penstock_save(const char *path, const struct penstock_tensor *tensors, size_t n)
{
    struct safetensors_item *items = calloc(n ? n : 1, sizeof(*items));
    struct safetensors_writer *w;
    if (!items)
        return log_no_memory(path);
    for (size_t i = 0; i < n; i++) {
        items[i] = (struct safetensors_item){
            .name = tensors[i].name, .dtype = DTYPE_F32, .n_dims = tensors[i].n_dims};
        memcpy(items[i].dims, tensors[i].dims, sizeof(items[i].dims));
    }
    int err = safetensors_writer_open(&w, path, items, n, NULL);
    for (size_t i = 0; i < n && !err; i++) {
        size_t count = 1;
        for (int d = 0; d < tensors[i].n_dims; d++)
            count *= tensors[i].dims[d];
        safetensors_writer_add(w, tensors[i].data, count * sizeof(float));
    }
    free(items);
    return err ? err : safetensors_writer_close(w, true);
}

int penstock_write(const char *path, int (*write)(FILE *f, void *arg), void *arg)
{
    struct output o;
    int err = output_open(&o, path);

    if (err)
        return err;
    errno = 0;
    if (write(o.f, arg) || ferror(o.f))
        err = errno ? -errno : -EIO;
    return output_close(&o, err);
}

int penstock_can_write(const char *path)
{
    return output_check(path);
}
