/* copy: memcpy between CPU lanes, one device copy between GPUs or within one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runtime/link.h"

static int create(struct link *l)
{
    if (l->from->spec.kind == LANE_CPU)
        return 0;
    struct link_side *side = malloc(sizeof(*side));
    if (!side) {
        log_error("no memory for a link");
        return -ENOMEM;
    }
    /* Without peer access the driver copies through the host: slower, and as right. */
    int direct = device_peer_enable(l->from->spec.device, l->to->spec.device);
    int err = direct < 0 ? direct : link_side_create(side, l->from->spec.device);
    if (!err && !direct)
        log_warn(
            "GPUs %d and %d cannot reach each other: link copy goes through the host",
            l->from->spec.device, l->to->spec.device);
    if (err) {
        free(side);
        return err;
    }
    l->state = side;
    return 0;
}

static void destroy(struct link *l)
{
    if (l->state)
        link_side_destroy(l->state);
    free(l->state);
}

static int transfer(struct link *l, void *dst, const void *src, size_t bytes, void *after)
{
    struct link_side *side = l->state;

    if (!side) {
        memcpy(dst, src, bytes);
        return 0;
    }
    int err = device_copy(dst, src, bytes, side->stream);
    if (!err)
        err = link_side_record(side);
    return err ? err : link_side_finish(side, after);
}

const struct link_ops link_copy = {
    .kind = LINK_COPY,
    .create = create,
    .destroy = destroy,
    .transfer = transfer,
};
