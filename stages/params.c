/* Lays a stage's parameters out in one array. */
#include "stages/params.h"

#include <errno.h>
#include <stdlib.h>

/* Whether kernels read this weight as the continuation of the one before it in MODEL_WEIGHT_LIST's order
 * within a layer. */
static bool joins_previous(enum model_weight w)
{
    return w == MODEL_K || w == MODEL_V || w == MODEL_K_BIAS || w == MODEL_V_BIAS ||
           w == MODEL_UP || w == MODEL_UP_BIAS;
}

static int add(struct params *p, const struct model_config *c, enum model_weight w,
               size_t layer)
{
    struct param *q = &p->list[p->n];
    size_t n;

    if (!model_weight_wanted(c, w))
        return 0;
    *q = (struct param){.weight = w, .layer = layer};
    model_weight_shape(c, w, &q->rows, &q->cols);
    q->offset = p->elements;
    if (!joins_previous(w))
        q->offset = (q->offset + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    p->n++;
    int err = size_mul(&n, q->rows, q->cols);
    return err ? err : size_add(&p->elements, q->offset, n);
}

int params_init(struct params *p, const struct model_config *c, size_t first,
                size_t count, bool embed, bool head)
{
    int err = 0;
    *p = (struct params){0};
    p->list = calloc((count + 1) * MODEL_WEIGHT_COUNT, sizeof(*p->list));
    if (!p->list)
        return -ENOMEM;
    if (embed || (head && c->tied))
        err = add(p, c, MODEL_EMBED, 0);
    for (size_t i = first; i < first + count && !err; i++)
        for (int w = MODEL_ATTN_NORM; w < MODEL_WEIGHT_COUNT && !err; w++)
            err = add(p, c, w, i);
    if (head && !err)
        err = add(p, c, MODEL_OUT_NORM, 0);
    if (head && !err)
        err = add(p, c, MODEL_HEAD, 0); /* not wanted in a tied model */
    if (err)
        params_fini(p);
    return err;
}

void params_fini(struct params *p)
{
    free(p->list);
    *p = (struct params){0};
}

const struct param *params_find(const struct params *p, enum model_weight weight,
                                size_t layer)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].weight == weight && p->list[i].layer == layer)
            return &p->list[i];
    return NULL;
}
