/* nccl: a two-rank communicator per edge and direction between two GPUs; between slices of one GPU,
 * which NCCL sees as one rank, a send to itself. The only module that includes NCCL. */
#include <errno.h>
#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "runtime/link.h"

/* Thread blocks of one transfer: they take multiprocessors from the lanes. */
#define MAX_CTAS      8
#define WARM_BYTES    ((size_t)1 << 20)
/* How long an abort waits for the lock, which a call that hangs may hold. */
#define ABORT_SECONDS 2

struct nccl {
    ncclComm_t
        comm[2]; /* (ranks): 1 if both lanes are on one GPU; a side of the link each */
    bool aborted;
};

/* NCCL is not thread-safe: every call is made under this lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int check(const struct link *l, ncclResult_t r, const char *what)
{
    if (r == ncclSuccess || r == ncclInProgress)
        return 0;
    log_error("link nccl from %s to %s: NCCL cannot %s: %s", l->from->spec.name,
              l->to->spec.name, what, ncclGetErrorString(r));
    return r == ncclUnhandledCudaError || r == ncclSystemError ? -EIO : -EPROTO;
}

static int init_rank(struct link *l, int rank, const ncclUniqueId *id)
{
    struct nccl *n = l->state;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int before, err = device_enter(l->side[rank].device, &before);

    if (err)
        return err;
    config.minCTAs = 1;
    config.maxCTAs = MAX_CTAS;
    config.splitShare = 0;
    err = check(l, ncclCommInitRankConfig(&n->comm[rank], l->n_sides, *id, rank, &config),
                "join two GPUs");
    device_leave(before);
    return err;
}

static int init_comms(struct link *l)
{
    ncclUniqueId id;

    pthread_mutex_lock(&lock);
    int err = check(l, ncclGetUniqueId(&id), "start");
    if (!err) {
        err = check(l, ncclGroupStart(), "start a group");
        for (int rank = 0; rank < l->n_sides && !err; rank++)
            err = init_rank(l, rank, &id);
        int end = check(l, ncclGroupEnd(), "join two GPUs");
        err = err ? err : end;
    }
    pthread_mutex_unlock(&lock);
    return err;
}

/* Errors that NCCL met since the last call: a GPU or a link that fell out. */
static int check_async(const struct link *l)
{
    const struct nccl *n = l->state;
    ncclResult_t result = ncclSuccess;
    int err = 0;

    for (int rank = 0; rank < l->n_sides && !err; rank++) {
        err = check(l, ncclCommGetAsyncError(n->comm[rank], &result), "tell its state");
        if (!err)
            err = check(l, result, "go on");
    }
    return err;
}

/* Both sides in one group: neither can wait for a call that is not made. */
static int send_and_receive(const struct link *l, void *dst, const void *src,
                            size_t bytes)
{
    const struct nccl *n = l->state;
    int last = l->n_sides - 1;
    int err = check(l, ncclGroupStart(), "start a group");

    if (err)
        return err;
    err = check(l, ncclSend(src, bytes, ncclChar, last, n->comm[0], l->side[0].stream),
                "send");
    if (!err)
        err = check(
            l, ncclRecv(dst, bytes, ncclChar, 0, n->comm[last], l->side[last].stream),
            "receive");
    int end = check(l, ncclGroupEnd(), "send");
    return err ? err : end;
}

static int enqueue(struct link *l, void *dst, const void *src, size_t bytes)
{
    struct nccl *n = l->state;

    pthread_mutex_lock(&lock);
    int err =
        __atomic_load_n(&n->aborted, __ATOMIC_ACQUIRE) ? -ECANCELED : check_async(l);
    if (!err)
        err = send_and_receive(l, dst, src, bytes);
    pthread_mutex_unlock(&lock);
    if (!err && l->n_sides == 2)
        err = link_side_join(&l->side[0], l->side[1].stream);
    return err;
}

/* NCCL connects two ranks at their first transfer, which takes long: make it now. */
static int warm_up(struct link *l)
{
    void *src = NULL, *dst = NULL;
    int err = device_alloc(&src, l->from->spec.device, WARM_BYTES);

    if (!err)
        err = device_alloc(&dst, l->to->spec.device, WARM_BYTES);
    if (!err)
        err = enqueue(l, dst, src, WARM_BYTES);
    if (!err)
        err = link_finish(l, NULL);
    device_free(l->to->spec.device, dst);
    device_free(l->from->spec.device, src);
    return err;
}

static void destroy(struct link *l)
{
    struct nccl *n = l->state;

    if (!n)
        return;
    pthread_mutex_lock(&lock);
    for (int rank = 0; rank < l->n_sides && !n->aborted; rank++)
        if (n->comm[rank])
            ncclCommDestroy(n->comm[rank]);
    pthread_mutex_unlock(&lock);
    free(n);
}

static int create(struct link *l)
{
    int from = l->from->spec.device, to = l->to->spec.device;

    l->state = calloc(1, sizeof(struct nccl));
    if (!l->state)
        return log_no_memory("a link");
    int err = link_add_side(l, from);
    if (!err && from != to)
        err = link_add_side(l, to);
    if (!err)
        err = init_comms(l);
    return err ? err : warm_up(l);
}

/* A call that hangs may hold the lock, and only the abort makes it return: then go on without. */
static void abort_transfers(struct link *l)
{
    struct nccl *n = l->state;
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ABORT_SECONDS;
    bool locked = !pthread_mutex_timedlock(&lock, &until);
    if (!__atomic_exchange_n(&n->aborted, true, __ATOMIC_ACQ_REL))
        for (int rank = 0; rank < l->n_sides; rank++)
            if (n->comm[rank])
                ncclCommAbort(n->comm[rank]);
    if (locked)
        pthread_mutex_unlock(&lock);
}

const struct link_ops link_nccl = {
    .kind = LINK_NCCL,
    .create = create,
    .destroy = destroy,
    .enqueue = enqueue,
    .abort = abort_transfers,
};
