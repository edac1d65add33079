/* host: from a GPU through page-locked memory to another one; between a GPU and a CPU lane; memcpy
 * between CPU lanes. */
#include <string.h>

#include "kernels/device.h"
#include "runtime/link.h"

/* Between GPUs a transfer goes in pieces, so that one enters the host while the last one leaves it. */
#define PIECE_BYTES ((size_t)2 << 20)

static void destroy(struct link *l)
{
    if (l->state)
        device_host_free(l->state);
}

/* Between GPUs: side[0] into the host's memory, side[1] out of it; l->state is that memory, (max_bytes). */
static int create(struct link *l)
{
    int err = 0;

    if (l->from->spec.kind == LANE_CUDA)
        err = link_add_side(l, l->from->spec.device);
    if (!err && l->to->spec.kind == LANE_CUDA)
        err = link_add_side(l, l->to->spec.device);
    if (!err && l->n_sides == 2 && l->max_bytes)
        err = device_host_alloc(&l->state, l->max_bytes);
    return err;
}

static int enqueue_piece(struct link *l, uint8_t *dst, const uint8_t *src, size_t at,
                         size_t bytes)
{
    uint8_t *stage = (uint8_t *)l->state + at;
    void *out = l->side[1].stream;
    int err = device_copy(stage, src + at, bytes, l->side[0].stream);

    if (!err)
        err = link_side_join(&l->side[0], out);
    return err ? err : device_copy(dst + at, stage, bytes, out);
}

static int enqueue(struct link *l, void *dst, const void *src, size_t bytes)
{
    if (!l->n_sides)
        memcpy(dst, src, bytes);
    /* To or from a CPU lane, whose memory may be pageable: CUDA returns when it has read or written it. */
    if (l->n_sides < 2)
        return l->n_sides ? device_copy(dst, src, bytes, l->side[0].stream) : 0;

    /* The last transfer may still be leaving the staging memory. */
    int err = link_side_join(&l->side[1], l->side[0].stream);
    for (size_t at = 0; at < bytes && !err; at += PIECE_BYTES) {
        size_t left = bytes - at;
        err = enqueue_piece(l, dst, src, at, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
    return err;
}

const struct link_ops link_host = {
    .kind = LINK_HOST,
    .create = create,
    .destroy = destroy,
    .enqueue = enqueue,
};
