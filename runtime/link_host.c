/* host: from a GPU through page-locked memory to another one; between a GPU and a CPU lane; memcpy
 * between CPU lanes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runtime/link.h"

/* Between GPUs a transfer goes in pieces, so that one enters the host while the last one leaves it. */
#define PIECE_BYTES ((size_t)2 << 20)

struct host {
    struct link_side in,
        out; /* from the source GPU, to the destination GPU; stream NULL: a CPU lane */
    uint8_t *stage; /* (max_bytes) page-locked, between GPUs */
};

static void destroy(struct link *l)
{
    struct host *h = l->state;

    if (!h)
        return;
    link_side_destroy(&h->in);
    link_side_destroy(&h->out);
    if (h->stage)
        device_host_free(h->stage);
    free(h);
    l->state = NULL;
}

static int create(struct link *l)
{
    bool from_gpu = l->from->spec.kind == LANE_CUDA,
         to_gpu = l->to->spec.kind == LANE_CUDA;
    struct host *h = calloc(1, sizeof(*h));
    int err = 0;

    if (!h) {
        log_error("no memory for a link");
        return -ENOMEM;
    }
    l->state = h;
    if (from_gpu)
        err = link_side_create(&h->in, l->from->spec.device);
    if (!err && to_gpu)
        err = link_side_create(&h->out, l->to->spec.device);
    if (!err && from_gpu && to_gpu && l->max_bytes)
        err = device_host_alloc((void **)&h->stage, l->max_bytes);
    if (err)
        destroy(l);
    return err;
}

/* A copy between a GPU and a CPU lane, whose memory may be pageable: CUDA returns when it has read or
 * written it. */
static int transfer_one(struct link_side *side, void *dst, const void *src, size_t bytes,
                        void *after)
{
    int err = device_copy(dst, src, bytes, side->stream);

    if (!err)
        err = link_side_record(side);
    return err ? err : link_side_finish(side, after);
}

static int transfer_piece(struct host *h, uint8_t *dst, const uint8_t *src, size_t at,
                          size_t bytes)
{
    int err = device_copy(h->stage + at, src + at, bytes, h->in.stream);

    if (!err)
        err = link_side_record(&h->in);
    if (!err)
        err = link_side_finish(&h->in, h->out.stream);
    return err ? err : device_copy(dst + at, h->stage + at, bytes, h->out.stream);
}

static int transfer(struct link *l, void *dst, const void *src, size_t bytes, void *after)
{
    struct host *h = l->state;

    if (!h->in.stream && !h->out.stream) {
        memcpy(dst, src, bytes);
        return 0;
    }
    if (!h->in.stream)
        return transfer_one(&h->out, dst, src, bytes, after);
    if (!h->out.stream)
        return transfer_one(&h->in, dst, src, bytes, after);

    /* The last transfer may still be leaving the staging buffer. */
    int err = device_stream_wait(h->in.stream, h->out.event);
    for (size_t at = 0; at < bytes && !err; at += PIECE_BYTES) {
        size_t left = bytes - at;
        err = transfer_piece(h, dst, src, at, left < PIECE_BYTES ? left : PIECE_BYTES);
    }
    if (!err)
        err = link_side_record(&h->out);
    return err ? err : link_side_finish(&h->out, after);
}

const struct link_ops link_host = {
    .kind = LINK_HOST,
    .create = create,
    .destroy = destroy,
    .transfer = transfer,
};
