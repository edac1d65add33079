/* Checkpoints: the trainer's arrays, from and to files. */
#include "runtime/checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/hf_write.h"
#include "stages/safetensors.h"
#include "stages/safetensors_write.h"

#define MODEL_FILE     "model.safetensors"
#define OPTIMIZER_FILE "optimizer.safetensors"

/* One array of a parameter in a file. */
struct array {
    char name[160];
    enum trainer_what what;
    enum model_weight weight;
    size_t layer, rows, cols;
};

/* Arrays of a file, in its order. */
struct array_list {
    struct array *items; /* (n) */
    size_t n, longest;   /* elements */
};

static void add(struct array_list *list, const struct model_config *c, const char *prefix,
                enum trainer_what what, enum model_weight w, size_t layer)
{
    struct array *a = &list->items[list->n++];
    char name[128];

    *a = (struct array){.what = what, .weight = w, .layer = layer};
    model_weight_name(name, sizeof(name), w, layer);
    snprintf(a->name, sizeof(a->name), "%s%s", prefix, name);
    model_weight_shape(c, w, &a->rows, &a->cols);
    if (a->rows * a->cols > list->longest)
        list->longest = a->rows * a->cols;
}

/* Adds one array of every parameter. */
static void add_all(struct array_list *list, const struct model_config *c,
                    const char *prefix, enum trainer_what what)
{
    for (int w = 0; w < MODEL_WEIGHT_COUNT; w++)
        for (size_t l = 0; l < (w < MODEL_ATTN_NORM ? 1 : c->L); l++)
            if (model_weight_wanted(c, w))
                add(list, c, prefix, what, w, l);
}

/* Room for `kinds` arrays of every parameter. */
static int list_init(struct array_list *list, const struct model_config *c, int kinds)
{
    *list = (struct array_list){0};
    list->items = calloc(c->L * MODEL_WEIGHT_COUNT * kinds, sizeof(*list->items));
    return list->items ? 0 : log_no_memory("a checkpoint");
}

static bool computes_in_bf16(const struct training *t)
{
    return t->machine.lanes.lanes[0].ctx->dtype == DTYPE_BF16;
}

static int list_optimizer(struct array_list *list, const struct training *t, bool master)
{
    const struct model_config *c = &t->machine.model->config;
    int err = list_init(list, c, 3);

    if (err)
        return err;
    add_all(list, c, "m.", TRAINER_M);
    add_all(list, c, "v.", TRAINER_V);
    if (master)
        add_all(list, c, "master.", TRAINER_WEIGHT);
    return 0;
}

/* ---- Writing ----------------------------------------------------------------------------------- */

/* To nearest, ties to even, in place: what kernels make of a master weight. */
static void round_bf16(float *x, size_t n)
{
    uint16_t *out = (uint16_t *)x;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits += 0x7fff + (bits >> 16 & 1);
        out[i] = bits >> 16;
    }
}

static int write_arrays(struct training *t, struct safetensors_writer *w,
                        const struct array_list *list, enum dtype dtype)
{
    float *values = malloc(list->longest * sizeof(*values));
    int err = values ? 0 : log_no_memory("a checkpoint");

    for (size_t i = 0; i < list->n && !err; i++) {
        const struct array *a = &list->items[i];
        size_t n = a->rows * a->cols;
        err = trainer_read(t->trainer, values, a->what, a->weight, a->layer);
        if (!err && dtype == DTYPE_BF16)
            round_bf16(values, n);
        if (!err && safetensors_writer_add(w, values, n * dtype_block_bytes(dtype)))
            break; /* closing says why */
    }
    free(values);
    return err;
}

static int write_file(struct training *t, const char *dir, const char *file,
                      const struct array_list *list, enum dtype dtype)
{
    struct safetensors_item *items = calloc(list->n, sizeof(*items));
    struct safetensors_writer *w;
    char *path;
    int err = items ? file_join(&path, dir, file) : log_no_memory(file);

    if (err) {
        free(items);
        return err;
    }
    for (size_t i = 0; i < list->n; i++) {
        const struct array *a = &list->items[i];
        items[i] = (struct safetensors_item){
            a->name, dtype, a->cols == 1 ? 1 : 2, {a->rows, a->cols}};
    }
    err = safetensors_writer_open(&w, path, items, list->n, NULL);
    if (!err) {
        err = write_arrays(t, w, list, dtype);
        int closed = safetensors_writer_close(w, !err);
        err = err ? err : closed;
    }
    free(path);
    free(items);
    return err;
}

static int write_model(struct training *t, const char *dir)
{
    const struct model_config *c = &t->machine.model->config;
    bool bf16 = computes_in_bf16(t);
    struct array_list list;
    int err = list_init(&list, c, 1);

    if (err)
        return err;
    add_all(&list, c, "", TRAINER_WEIGHT);
    err = write_file(t, dir, MODEL_FILE, &list, bf16 ? DTYPE_BF16 : DTYPE_F32);
    free(list.items);
    return err ? err : hf_write(dir, t->machine.model, bf16 ? "bfloat16" : "float32");
}

static int write_optimizer(struct training *t, const char *dir)
{
    struct array_list list;
    int err = list_optimizer(&list, t, computes_in_bf16(t));

    if (!err)
        err = write_file(t, dir, OPTIMIZER_FILE, &list, DTYPE_F32);
    free(list.items);
    return err;
}

int checkpoint_write(const struct checkpoint_dir *d, struct training *t,
                     const struct checkpoint_state *state)
{
    char *path;
    int err = checkpoint_begin(d, &path, state->step);

    if (err)
        return err;
    err = write_model(t, path);
    if (!err)
        err = write_optimizer(t, path);
    if (!err)
        err = checkpoint_state_write(state, path);
    return checkpoint_end(d, path, state->step, err);
}

/* ---- Reading ----------------------------------------------------------------------------------- */

static bool fits(const struct safetensors_tensor *f, const struct array *a)
{
    return f && f->dtype == DTYPE_F32 && f->n_dims == (a->cols == 1 ? 1 : 2) &&
           f->dims[0] == a->rows && (a->cols == 1 || f->dims[1] == a->cols);
}

/* The file may hold its data unaligned. */
static int read_array(struct training *t, const struct safetensors *file,
                      const struct array *a, float *values, const char *path)
{
    const struct safetensors_tensor *f = safetensors_find(file, a->name);

    if (!fits(f, a)) {
        log_error("%s: %s %s", path, a->name,
                  f ? "is not of the model's shape in F32" : "is missing");
        return -EINVAL;
    }
    memcpy(values, f->data, f->bytes);
    return trainer_write(t->trainer, values, a->what, a->weight, a->layer);
}

/* Whether the run computed in bf16, and its model file is not all there is of the weights. */
static bool has_masters(const struct safetensors *file)
{
    char name[160] = "master.";
    size_t n = strlen(name);

    model_weight_name(name + n, sizeof(name) - n, MODEL_OUT_NORM, 0);
    return safetensors_find(file, name);
}

int checkpoint_read(struct training *t, const char *dir)
{
    struct safetensors *file = NULL;
    struct array_list list = {0};
    float *values = NULL;
    char *path;
    int err = file_join(&path, dir, OPTIMIZER_FILE);

    if (err)
        return err;
    err = safetensors_open(&file, path);
    if (!err)
        err = list_optimizer(&list, t, has_masters(file));
    if (!err && !(values = malloc(list.longest * sizeof(*values))))
        err = log_no_memory(path);
    for (size_t i = 0; i < list.n && !err; i++)
        err = read_array(t, file, &list.items[i], values, path);
    if (!err)
        err = trainer_share(t->trainer);
    free(values);
    free(list.items);
    if (file)
        safetensors_close(file);
    free(path);
    return err;
}
