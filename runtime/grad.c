/* penstock_grad: loss and gradients of given sequences, without changing anything. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/training.h"

/* One gradient under its Hugging Face name. */
static int read_one(struct training *t, struct penstock_gradient *g, enum model_weight w,
                    size_t layer)
{
    model_weight_name(g->name, sizeof(g->name), w, layer);
    model_weight_shape(&t->machine.model->config, w, &g->rows, &g->cols);
    g->values = malloc(g->rows * g->cols * sizeof(*g->values));
    if (!g->values)
        return log_no_memory("the gradients");
    return trainer_read(t->trainer, g->values, TRAINER_GRAD, w, layer);
}

static int read_all(struct training *t, struct penstock_grad_report *r)
{
    const struct model_config *c = &t->machine.model->config;
    int err = 0;

    r->gradients = calloc(c->L * MODEL_WEIGHT_COUNT, sizeof(*r->gradients));
    if (!r->gradients)
        return log_no_memory("the gradients");
    for (int w = 0; w < MODEL_WEIGHT_COUNT && !err; w++) {
        size_t layers = w < MODEL_ATTN_NORM ? 1 : c->L;
        for (size_t l = 0; l < layers && !err && model_weight_wanted(c, w); l++)
            err = read_one(t, &r->gradients[r->n++], w, l);
    }
    return err;
}

int penstock_grad(struct penstock_grad_report *r, const struct penstock_options *options,
                  const struct penstock_schedule *schedule,
                  const struct penstock_prompt *sequences, int n)
{
    struct training t;
    size_t longest = 0;

    *r = (struct penstock_grad_report){0};
    for (int i = 0; i < n; i++)
        longest = sequences[i].n > longest ? sequences[i].n : longest;
    int err = training_open(&t, options, schedule, n, (int)longest - 1);
    if (err)
        return err;
    err = training_start(&t, options);
    if (!err)
        err = training_step(&t, &r->loss, sequences, n);
    if (!err)
        err = training_finish(&t, &r->grad_norm);
    if (!err)
        err = read_all(&t, r);
    if (!err)
        err = training_report(&t, &r->run);
    if (err == -ETIMEDOUT) /* workers hang and may still use all of this */
        return err;
    training_close(&t);
    if (err)
        penstock_grad_report_free(r);
    return err;
}

void penstock_grad_report_free(struct penstock_grad_report *r)
{
    for (size_t i = 0; r->gradients && i < r->n; i++)
        free(r->gradients[i].values);
    free(r->gradients);
    penstock_report_free(&r->run);
    *r = (struct penstock_grad_report){0};
}
