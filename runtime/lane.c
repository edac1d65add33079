/* Lanes: the slices of their GPUs, and the context that each lane's kernels run in. */
#include "runtime/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/device.h"

/* The slices of one GPU, shared out to its lanes. */
static int cut_gpu(struct lane_set *set, int device, int n)
{
    void **streams = calloc((size_t)n, sizeof(*streams));
    int *sms = calloc((size_t)n, sizeof(*sms));
    int err = -ENOMEM;

    if (streams && sms)
        err = device_slices_create(&set->slices[set->n_slices], device, n, streams, sms);
    else
        log_error("no memory for the slices of GPU %d", device);
    if (!err)
        set->n_slices++;
    for (int i = 0; i < set->n && !err; i++) {
        struct lane *l = &set->lanes[i];
        if (l->spec.kind == LANE_CUDA && l->spec.device == device) {
            l->stream = streams[l->spec.slice];
            l->sms = sms[l->spec.slice];
        }
    }
    free(streams);
    free(sms);
    return err;
}

/* Every GPU is cut when its first lane is met. */
static int cut_gpus(struct lane_set *set)
{
    int err = 0;

    for (int i = 0; i < set->n && !err; i++) {
        const struct lane *l = &set->lanes[i];
        if (l->spec.kind == LANE_CUDA && !l->stream)
            err = cut_gpu(set, l->spec.device, l->spec.n_slices);
    }
    return err;
}

static int create_context(struct lane *l, enum dtype dtype)
{
    if (l->spec.kind == LANE_CPU)
        return kernel_cpu_create(&l->ctx, l->spec.n_cpus, l->spec.cpus);
    return kernel_cuda_create(&l->ctx, l->spec.device, l->stream, l->sms, dtype);
}

int lane_set_create(struct lane_set *set, const struct lane_spec *specs, int n,
                    enum dtype dtype)
{
    *set = (struct lane_set){.n = n};
    set->lanes = calloc((size_t)n, sizeof(*set->lanes));
    set->slices = calloc((size_t)n, sizeof(*set->slices));
    if (!set->lanes || !set->slices) {
        log_error("no memory for %d lanes", n);
        set->n = 0;
        lane_set_destroy(set);
        return -ENOMEM;
    }
    for (int i = 0; i < n; i++)
        set->lanes[i] = (struct lane){
            .index = i, .spec = specs[i], .worker = -1, .transfer_worker = -1};
    int err = cut_gpus(set);
    for (int i = 0; i < n && !err; i++)
        err = create_context(&set->lanes[i], dtype);
    if (err)
        lane_set_destroy(set);
    return err;
}

void lane_set_destroy(struct lane_set *set)
{
    for (int i = 0; i < set->n; i++) {
        arena_fini(&set->lanes[i].arena);
        if (set->lanes[i].ctx)
            kernel_destroy(set->lanes[i].ctx);
    }
    for (int i = 0; i < set->n_slices; i++)
        device_slices_destroy(set->slices[i]);
    free(set->lanes);
    free(set->slices);
    *set = (struct lane_set){0};
}

size_t lane_resident(const struct lane *lane)
{
    size_t page = sysconf(_SC_PAGESIZE), bytes = lane->arena.bytes, used = 0;
    uintptr_t base = (uintptr_t)lane->arena.base, first = base / page * page;
    size_t n = (base - first + bytes + page - 1) / page;
    unsigned char *in = NULL;

    if (lane->spec.kind == LANE_CPU && bytes)
        in = malloc(n);
    if (!in || mincore((void *)first, n * page, in)) {
        free(in);
        return bytes;
    }
    for (size_t i = 0; i < n; i++)
        used += in[i] & 1 ? page : 0;
    free(in);
    return used < bytes ? used : bytes;
}
