/* Models: opening either kind of file, and reading weights out of it. */
#include "stages/model.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/file.h"
#include "stages/hf.h"
#include "stages/random.h"
#include "stages/safetensors.h"
#include "stages/source.h"

static int open_folder(struct model *m, const char *path)
{
    int err;

    if (!(m->dir = strdup(path)))
        return file_no_memory(path);
    if ((err = hf_config_open(&m->config, path)) ||
        (err = safetensors_set_open(&m->files, path)))
        return err;
    return source_bind(m, path);
}

static int open_gguf(struct model *m, const char *path)
{
    int err;

    if ((err = gguf_open(&m->gguf, path)) || (err = source_gguf_config(m, m->gguf, path)))
        return err;
    return source_bind(m, path);
}

static bool ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), k = strlen(end);
    return n >= k && !strcmp(path + n - k, end);
}

static int open_path(struct model *m, const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        int err = -errno;
        log_error("%s: %s", path, strerror(-err));
        return err;
    }
    if (S_ISDIR(st.st_mode))
        return open_folder(m, path);
    if (ends_with(path, ".safetensors") || ends_with(path, ".json")) {
        log_error("%s: give the folder that holds it", path);
        return -EINVAL;
    }
    return open_gguf(m, path);
}

int model_open(struct model **out, const char *path)
{
    struct model *m = calloc(1, sizeof(*m));

    *out = NULL;
    if (!m || !(m->path = strdup(path))) {
        free(m);
        return file_no_memory(path);
    }
    int err = open_path(m, path);
    if (err)
        model_close(m);
    else
        *out = m;
    return err;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    safetensors_set_close(m->files);
    gguf_close(m->gguf);
    free(m->tensors);
    free(m->rope_factors);
    free(m->dir);
    free(m->path);
    free(m);
}

int model_random(struct model **out, const struct model_config *config, uint64_t seed)
{
    struct model *m = calloc(1, sizeof(*m));
    size_t n = (config->L ? config->L : 1) * MODEL_WEIGHT_COUNT;

    *out = NULL;
    if (!m || !(m->path = strdup("random weights")) ||
        !(m->tensors = calloc(n, sizeof(*m->tensors)))) {
        model_close(m);
        return file_no_memory("random weights");
    }
    m->config = *config;
    m->random = true;
    m->seed = seed;
    for (size_t i = 0; i < n; i++)
        model_weight_shape(config, (enum model_weight)(i % MODEL_WEIGHT_COUNT),
                           &m->tensors[i].rows, &m->tensors[i].cols);
    *out = m;
    return 0;
}

const struct model_tensor *model_tensor(const struct model *m, enum model_weight weight,
                                        size_t layer)
{
    if (weight == MODEL_HEAD && m->config.tied)
        weight = MODEL_EMBED;
    if (weight == MODEL_EMBED || weight == MODEL_OUT_NORM || weight == MODEL_HEAD)
        layer = 0;
    return &m->tensors[layer * MODEL_WEIGHT_COUNT + weight];
}

bool model_has(const struct model *m, enum model_weight weight, size_t layer)
{
    if (m->random)
        return model_weight_wanted(&m->config, weight) || weight == MODEL_HEAD;
    return model_tensor(m, weight, layer)->data != NULL;
}

/* The file's row that holds row r of a weight. The rows of a GGUF file's q and k
 * alternate between the halves of a head that RoPE pairs. */
static size_t file_row(const struct model_tensor *t, size_t r)
{
    if (!t->permute_heads)
        return r;
    size_t D = t->rows / (size_t)t->permute_heads, i = r % D;
    return r - i + 2 * (i % (D / 2)) + i / (D / 2);
}

/* NaN and infinity have all bits of the exponent set. Integers, so that the loop
 * vectorises. */
static bool all_finite(const float *x, size_t n)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f800000;
}

/* Asks the system to read ahead: pages come in large pieces instead of one fault each. */
static void read_ahead(const uint8_t *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t lead = (uintptr_t)data & (page - 1);

    madvise((void *)(data - lead), bytes + lead, MADV_WILLNEED);
}

int model_read(const struct model *m, float *out, enum model_weight weight, size_t layer,
               size_t first, size_t rows)
{
    const struct model_tensor *t = model_tensor(m, weight, layer);
    size_t row_bytes;

    assert(first <= t->rows && rows <= t->rows - first);
    if (m->random) {
        random_rows(out, m, weight, layer, first, rows);
        return 0;
    }
    assert(t->data);
    if (dtype_bytes(&row_bytes, t->dtype, t->cols) < 0)
        return -EINVAL;
    if (!t->permute_heads)
        read_ahead(t->data + first * row_bytes, rows * row_bytes);
    for (size_t i = 0; i < rows; i++) {
        size_t row = file_row(t, first + i);
        dequantize(out + i * t->cols, t->dtype, t->data + row * row_bytes, t->cols);
        if (all_finite(out + i * t->cols, t->cols))
            continue;
        log_error(
            "%s: tensor %s, row %zu: a value is NaN or infinite: the file is damaged",
            m->path, t->name, row);
        return -EDOM;
    }
    return 0;
}
