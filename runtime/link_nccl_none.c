/* nccl in a build without NCCL: link_can_join refuses it, for there is no enqueue. */
#include <errno.h>

#include "runtime/link.h"

static int create(struct link *l)
{
    (void)l;
    log_error("this build has no NCCL: use link copy or auto");
    return -EINVAL;
}

const struct link_ops link_nccl = {
    .kind = LINK_NCCL,
    .create = create,
};
