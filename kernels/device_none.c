/* GPUs in a build without CUDA: there are none. */
#include "kernels/device.h"

#include <errno.h>

static int none(void)
{
    log_error("no GPU: %s", device_why_none());
    return -ENODEV;
}

int device_count(void)
{
    return 0;
}

const char *device_why_none(void)
{
    return "this build has no CUDA";
}

int device_query(struct device_info *info, int device)
{
    (void)info, (void)device;
    return none();
}

int device_slices_create(struct device_slices **out, int device, int n, void **streams,
                         int *sms)
{
    (void)out, (void)device, (void)n, (void)streams, (void)sms;
    return none();
}

void device_slices_destroy(struct device_slices *slices)
{
    (void)slices;
}

int device_enter(int device, int *before)
{
    (void)device, (void)before;
    return none();
}

void device_leave(int before)
{
    (void)before;
}

int device_stream_create(void **stream, int device, bool high)
{
    (void)stream, (void)device, (void)high;
    return none();
}

void device_stream_destroy(void *stream)
{
    (void)stream;
}

int device_stream_sync(void *stream)
{
    (void)stream;
    return none();
}

int device_event_create(void **event, int device, bool timed)
{
    (void)event, (void)device, (void)timed;
    return none();
}

void device_event_destroy(void *event)
{
    (void)event;
}

int device_event_record(void *event, void *stream)
{
    (void)event, (void)stream;
    return none();
}

int device_stream_wait(void *stream, void *event)
{
    (void)stream, (void)event;
    return none();
}

int device_event_sync(void *event)
{
    (void)event;
    return none();
}

int device_event_query(void *event)
{
    (void)event;
    return none();
}

int device_event_elapsed(double *seconds, void *a, void *b)
{
    (void)seconds, (void)a, (void)b;
    return none();
}

int device_alloc(void **p, int device, size_t bytes)
{
    (void)p, (void)device, (void)bytes;
    return none();
}

void device_free(int device, void *p)
{
    (void)device, (void)p;
}

int device_host_alloc(void **p, size_t bytes)
{
    (void)p, (void)bytes;
    return none();
}

void device_host_free(void *p)
{
    (void)p;
}

int device_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    (void)dst, (void)src, (void)bytes, (void)stream;
    return none();
}

int device_peer_can(int a, int b)
{
    (void)a, (void)b;
    return none();
}

int device_peer_enable(int a, int b)
{
    (void)a, (void)b;
    return none();
}

int device_peer_rank(int a, int b)
{
    (void)a, (void)b;
    return none();
}
