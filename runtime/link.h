/* A link carries bytes from one lane to another. One transfer is one call that holds both sides, made
 * when the source is produced and the destination is free, so no order of transfers can deadlock. A
 * link knows nothing of StarPU. */
#ifndef PENSTOCK_LINK_H
#define PENSTOCK_LINK_H

#include "runtime/lane.h"

/* nccl: NCCL send/recv (send-to-self between slices of one GPU); copy: peer or on-device copy, memcpy
 * between CPU lanes; host: through host memory. auto: copy within a device and between CPU lanes, nccl
 * between GPUs, host between a GPU and a CPU lane. */
enum link_kind { LINK_AUTO, LINK_NCCL, LINK_COPY, LINK_HOST, LINK_KIND_COUNT };

struct link;

struct link_ops {
    enum link_kind kind;
    int (*create)(struct link *l);
    /* Sides are not its affair. NULL: nothing to do. */
    void (*destroy)(struct link *l);
    /* See link_enqueue. */
    int (*enqueue)(struct link *l, void *dst, const void *src, size_t bytes);
    void (*abort)(struct link *l);
};

/* A stream of the link on one GPU, and the event that says how far it is. */
struct link_side {
    int device;
    void *stream, *event;
};

struct link {
    const struct link_ops *ops;
    struct lane *from, *to; /* borrowed */
    size_t max_bytes;
    bool backward;            /* carries gradients: its own communicator set */
    struct link_side side[2]; /* (n_sides): none between CPU lanes; source first */
    int n_sides;
    void *state; /* the kind's own */
};

extern const struct link_ops link_nccl, link_copy, link_host;

/* kind_name "auto", "nccl", "copy", "host". */
const char *link_kind_name(enum link_kind kind);
int link_kind_parse(enum link_kind *kind, const char *name);

/* Whether a kind can join two lanes in this build; if not, *why, unless NULL, says so in a few words. */
bool link_can_join(enum link_kind kind, const struct lane *from, const struct lane *to,
                   const char **why);
/* What `auto` means between two lanes. */
enum link_kind link_kind_pick(const struct lane *from, const struct lane *to);

/* Creates and warms up the link. Staging buffers are allocated near the processor that the calling thread runs
 * on: call it from a thread that is bound next to one of the lanes. -EINVAL, one line, if the kind cannot join these lanes (nccl and a CPU
 * lane). max_bytes: the largest transfer, for staging buffers. */
int link_create(struct link **out, enum link_kind kind, struct lane *from,
                struct lane *to, size_t max_bytes, bool backward);
void link_destroy(struct link *l);

/* Copies src (on `from`) to dst (on `to`). One call at a time per link. Between CPU lanes it is done at return.
 * Otherwise it is enqueued behind what the streams of the sides wait for, and the stream of the last side ends when
 * both sides have. -EINVAL for more than max_bytes. */
int link_enqueue(struct link *l, void *dst, const void *src, size_t bytes);
/* Makes `after` (a cudaStream_t, or NULL: wait here) wait for all that was enqueued. */
int link_finish(struct link *l, void *after);
/* Both, of what is complete at the source. */
int link_transfer(struct link *l, void *dst, const void *src, size_t bytes, void *after);

/* Makes a transfer that hangs return (ncclCommAbort). */
void link_abort(struct link *l);

/* Median seconds of `repeats` transfers of `bytes` each, one after the other, seen from the host. Binds the calling
 * thread next to `from` for its buffer, then to `to`, and leaves it there. */
int link_measure(struct link *l, struct place *place, double *seconds, size_t bytes,
                 int repeats);

/* ---- For the kinds --------------------------------------------------------------------------- */

/* One more side, with a non-blocking stream of high priority. The link destroys it. */
int link_add_side(struct link *l, int device);
/* Makes a stream wait for what a side's has been given so far. */
int link_side_join(struct link_side *s, void *stream);

#endif
