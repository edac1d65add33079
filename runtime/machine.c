/* From options to a model and lanes. */
#include "runtime/machine.h"

#include <errno.h>
#include <string.h>

/* Speed of a multiprocessor in processors. */
#define GPU_SM_SPEED 80

static int parse_words(struct machine *m, const struct penstock_options *o)
{
    static const char *const orders[] = {
        [ORDER_STRICT] = "strict", [ORDER_PRIO] = "prio", [ORDER_FREE] = "free"};
    const char *order = o->order ? o->order : "strict";
    m->link = LINK_AUTO;
    if (o->link && link_kind_parse(&m->link, o->link))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(orders); i++)
        if (!strcmp(order, orders[i])) {
            m->order = i;
            return 0;
        }
    log_error("--order %s: expected strict, prio or free", order);
    return -EINVAL;
}

int machine_open(struct machine *m, const struct penstock_options *o)
{
    *m = (struct machine){0};
    int err = parse_words(m, o);
    task_environment(NULL, 0);
    if (!err)
        err = place_open(&m->place);
    if (!err)
        err = place_parse(m->place, &m->specs, &m->n_specs, o->devices);
    if (!err) {
        task_environment(m->specs, m->n_specs);
        err = o->shape ? model_open_shape(&m->model, o->shape, o->seed)
                       : model_open(&m->model, o->model);
    }
    if (err)
        machine_close(m);
    return err;
}

/* The lanes' element type: bf16 where all of them are GPUs, unless told otherwise. */
static int choose_dtype(const struct machine *m, const char *name, enum dtype *dtype)
{
    bool cpu = false;

    name = name ? name : "auto";
    for (int i = 0; i < m->n_specs; i++)
        cpu |= m->specs[i].kind == LANE_CPU;
    *dtype =
        !strcmp(name, "fp32") || (!strcmp(name, "auto") && cpu) ? DTYPE_F32 : DTYPE_BF16;
    if (!strcmp(name, "bf16") && cpu) {
        log_error("--dtype bf16: CPU lanes compute in fp32; leave them out or use fp32");
        return -EINVAL;
    }
    if (strcmp(name, "fp32") && strcmp(name, "bf16") && strcmp(name, "auto")) {
        log_error("--dtype %s: expected auto, fp32 or bf16", name);
        return -EINVAL;
    }
    return 0;
}

int machine_start(struct machine *m, const struct penstock_options *o, int n)
{
    enum dtype dtype;
    int err = choose_dtype(m, o->dtype, &dtype);
    if (!err)
        err = task_init(m->specs, n);
    if (err)
        return err;
    m->started = true;
    err = lane_set_create(&m->lanes, m->specs, n, dtype);
    return err ? err : task_assign(m->lanes.lanes, n);
}

void machine_close(struct machine *m)
{
    lane_set_destroy(&m->lanes);
    if (m->started)
        task_fini();
    lane_specs_free(m->specs, m->n_specs);
    place_close(m->place);
    model_close(m->model);
    *m = (struct machine){0};
}

double machine_speed(const struct lane *lane)
{
    return lane->spec.kind == LANE_CUDA ? lane->sms * GPU_SM_SPEED : lane->spec.n_cpus;
}
