/* Binds tensors to roles. */
#include "stages/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/safetensors.h"

/* Norms and matrices: what every layer has at least. */
#define LAYER_MIN_TENSORS 9

static const struct {
    bool per_layer;
    const char *gguf;
} roles[MODEL_WEIGHT_COUNT] = {
#define X(id, per_layer, rows, cols, hf, gguf) {per_layer, gguf},
    MODEL_WEIGHT_LIST(X)
#undef X
};

/* A tensor as either kind of file describes it. */
struct found {
    enum dtype dtype;
    const char *type;
    int n_dims;
    size_t rows, cols; /* the first two dimensions, row-major; cols 1 for a vector */
    const uint8_t *data;
};

static void tensor_name(char *name, size_t size, const struct model *m,
                        enum model_weight w, size_t layer)
{
    if (!m->gguf)
        model_weight_name(name, size, w, layer);
    else if (roles[w].per_layer)
        snprintf(name, size, "blk.%zu.%s", layer, roles[w].gguf);
    else
        snprintf(name, size, "%s", roles[w].gguf);
}

/* GGUF files count dimensions from the fastest; trailing ones are no dimensions. */
static bool find_gguf(struct found *f, const struct gguf *g, const char *name)
{
    const struct gguf_tensor *t = gguf_find_tensor(g, name);

    if (!t)
        return false;
    int n = t->n_dims;
    while (n > 1 && t->dims[n - 1] == 1)
        n--;
    *f = (struct found){.dtype = t->dtype,
                        .type = dtype_name(t->dtype),
                        .n_dims = n,
                        .data = t->data,
                        .rows = t->dims[0],
                        .cols = 1};
    if (n > 1) {
        f->rows = t->dims[1];
        f->cols = t->dims[0];
    }
    return true;
}

static bool find_safetensors(struct found *f, const struct safetensors_set *set,
                             const char *name)
{
    const struct safetensors_tensor *t = safetensors_set_find(set, name);

    if (!t)
        return false;
    *f = (struct found){.dtype = t->dtype,
                        .type = t->type,
                        .n_dims = t->n_dims,
                        .data = t->data,
                        .rows = t->dims[0],
                        .cols = 1};
    if (t->n_dims > 1)
        f->cols = t->dims[1];
    return true;
}

static bool find(struct found *f, const struct model *m, const char *name)
{
    return m->gguf ? find_gguf(f, m->gguf, name) : find_safetensors(f, m->files, name);
}

static bool is_float(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

/* A matrix of one row or one column may have lost a dimension in a GGUF file. */
static int check_found(const struct found *f, const struct model_tensor *t,
                       const char *name)
{
    bool vector = t->cols == 1;

    if (f->dtype >= DTYPE_I32 || (vector && !is_float(f->dtype))) {
        log_error("%s: tensor %s has type %s, which is not supported there", name,
                  t->name, f->type);
        return -ENOTSUP;
    }
    if (f->n_dims != (vector ? 1 : 2) || f->rows != t->rows || f->cols != t->cols) {
        log_error("%s: tensor %s has %d dimensions, the first %zu x %zu, but the "
                  "configuration asks for %zu x %zu",
                  name, t->name, f->n_dims, f->rows, f->cols, t->rows, t->cols);
        return -EINVAL;
    }
    return 0;
}

/* GGUF files of the llama architecture hold q and k with interleaved rows. */
static int permuted_heads(const struct model *m, enum model_weight w)
{
    if (!m->gguf || strcmp(m->config.arch, "llama"))
        return 0;
    if (w == MODEL_Q || w == MODEL_Q_BIAS)
        return (int)m->config.H;
    return w == MODEL_K || w == MODEL_K_BIAS ? (int)m->config.K : 0;
}

static int bind_one(struct model *m, enum model_weight w, size_t layer, const char *name)
{
    struct model_tensor *t = &m->tensors[layer * MODEL_WEIGHT_COUNT + w];
    bool wanted = model_weight_wanted(&m->config, w);
    struct found f;

    tensor_name(t->name, sizeof(t->name), m, w, layer);
    model_weight_shape(&m->config, w, &t->rows, &t->cols);
    if (!find(&f, m, t->name)) {
        if (!wanted)
            return 0;
        log_error("%s: it has no tensor %s", name, t->name);
        return -EINVAL;
    }
    if (!wanted && w == MODEL_HEAD) /* the embedding once more */
        return 0;
    if (!wanted) {
        log_error("%s: it has a tensor %s, which its configuration does not ask for",
                  name, t->name);
        return -EINVAL;
    }
    int err = check_found(&f, t, name);
    if (err)
        return err;
    t->dtype = f.dtype;
    t->data = f.data;
    t->permute_heads = permuted_heads(m, w);
    return 0;
}

int source_bind(struct model *m, const char *name)
{
    size_t n = m->gguf ? m->gguf->n_tensors : m->files->n_tensors, L = m->config.L;
    int err = 0;

    if (L > n / LAYER_MIN_TENSORS) {
        log_error("%s: %zu tensors are too few for %zu layers", name, n, L);
        return -EINVAL;
    }
    m->tensors = calloc(L * MODEL_WEIGHT_COUNT, sizeof(*m->tensors));
    if (!m->tensors)
        return file_no_memory(name);
    for (size_t layer = 0; layer < L; layer++)
        for (int w = 0; w < MODEL_WEIGHT_COUNT && !err; w++)
            if (roles[w].per_layer || layer == 0)
                err = bind_one(m, (enum model_weight)w, layer, name);
    return err;
}
