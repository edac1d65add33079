/* GPUs as the host sees them: what there is, slices of one by its multiprocessors, streams, events,
 * copies, pinned memory. Plain C so that no other room includes CUDA. In a build without CUDA, or
 * on a machine without a driver, device_count() is 0 and the rest returns -ENODEV. Errors are logged
 * once, here. Streams and events are cudaStream_t and cudaEvent_t as void *. */
#ifndef PENSTOCK_DEVICE_H
#define PENSTOCK_DEVICE_H

#include "kernels/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct device_info {
    char name[128];
    char pci[32]; /* "0000:1b:00.0" */
    int cc_major, cc_minor;
    int sm_count;
    size_t mem_total, mem_free; /* bytes */
};

int device_count(void);
/* Why device_count() is 0, for a message: "this machine has none". */
const char *device_why_none(void);
int device_query(struct device_info *info, int device);

/* Cuts a GPU into n slices of equal multiprocessor count (CUDA green contexts, rounded down to what
 * the hardware allows) and gives each a non-blocking stream. streams (n); sms: multiprocessors of each slice.
 * n = 1: an ordinary non-blocking stream of the primary context with all multiprocessors. -EINVAL if
 * the GPU cannot be cut so. The slices live until device_slices_destroy. */
struct device_slices;
int device_slices_create(struct device_slices **out, int device, int n, void **streams,
                         int *sms);
void device_slices_destroy(struct device_slices *slices);

/* Makes a GPU the calling thread's current one, which is what NCCL looks at. *before is for
 * device_leave; the other functions here leave the current GPU as it was. */
int device_enter(int device, int *before);
void device_leave(int before);

/* high: highest priority (for links). */
int device_stream_create(void **stream, int device, bool high);
void device_stream_destroy(void *stream);
int device_stream_sync(void *stream);
int device_event_create(void **event, int device, bool timed);
void device_event_destroy(void *event);
int device_event_record(void *event, void *stream);
int device_stream_wait(void *stream, void *event);
int device_event_sync(void *event);
/* 1 done, 0 not yet, -errno. */
int device_event_query(void *event);
/* Seconds from a to b; both recorded and complete, timed, on one device. */
int device_event_elapsed(double *seconds, void *a, void *b);

int device_alloc(void **p, int device, size_t bytes);
void device_free(int device, void *p);
/* Page-locked host memory that every device can reach. */
int device_host_alloc(void **p, size_t bytes);
void device_host_free(void *p);
/* Enqueues a copy; either side may be device memory of any GPU or host memory. */
int device_copy(void *dst, const void *src, size_t bytes, void *stream);

/* Whether a can reach b's memory directly, and the same switched on. 1 yes, 0 no, -errno. */
int device_peer_can(int a, int b);
int device_peer_enable(int a, int b);
/* Driver's rank of the link between two GPUs (cudaDevP2PAttrPerformanceRank), lower is faster. */
int device_peer_rank(int a, int b);

#ifdef __cplusplus
}
#endif

#endif
