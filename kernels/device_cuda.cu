/* GPUs by CUDA. The driver's own entry points (green contexts) are asked of the runtime, never
 * linked: the program starts on a machine without a driver. */
#include "kernels/device.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime.h>

/* Green contexts and their streams are of CUDA 12.5; entry points of that version are asked for. */
#define DRIVER_API 12050

struct driver {
    decltype(&cuDeviceGet) device_get;
    decltype(&cuDeviceGetDevResource) get_resource;
    decltype(&cuDevSmResourceSplitByCount) split;
    decltype(&cuDevResourceGenerateDesc) describe;
    decltype(&cuGreenCtxCreate) ctx_create;
    decltype(&cuGreenCtxDestroy) ctx_destroy;
    decltype(&cuGreenCtxStreamCreate) stream_create;
    decltype(&cuGetErrorString) error_string;
};

struct device_slices {
    int device, n;
    cudaStream_t *streams; /* (n) */
    CUgreenCtx *contexts;  /* (n), NULL: a whole GPU in its primary context */
    struct driver driver;
};

/* What CUDA said when it was first asked for its GPUs. */
struct start {
    int count;
    cudaError_t why;
};

static pthread_once_t started = PTHREAD_ONCE_INIT;
static struct start first;

static int errno_of(cudaError_t e)
{
    switch (e) {
    case cudaSuccess:
        return 0;
    case cudaErrorMemoryAllocation:
        return -ENOMEM;
    case cudaErrorInvalidValue:
        return -EINVAL;
    case cudaErrorInvalidDevice:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
        return -ENODEV;
    default:
        return -EIO;
    }
}

/* Logs what CUDA would not do, and forgets the error: it would be found by the next kernel launch. */
static int check(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return 0;
    log_error("CUDA cannot %s: %s", what, cudaGetErrorString(e));
    cudaGetLastError();
    return errno_of(e);
}

/* Several streams per lane run at once, and one that waits for an event holds back the others of its
 * hardware queue: CUDA reads how many queues to make when it starts. */
static void start_cuda(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    first.why = cudaGetDeviceCount(&first.count);
    if (first.why != cudaSuccess) {
        first.count = 0;
        cudaGetLastError();
    }
}

int device_count(void)
{
    pthread_once(&started, start_cuda);
    return first.count;
}

const char *device_why_none(void)
{
    int driver = 0;

    device_count();
    if (first.why == cudaErrorInsufficientDriver && !cudaDriverGetVersion(&driver) &&
        driver)
        return "the NVIDIA driver is too old for this build's CUDA";
    if (first.why == cudaSuccess || first.why == cudaErrorNoDevice ||
        first.why == cudaErrorInsufficientDriver)
        return "this machine has none";
    return cudaGetErrorString(first.why);
}

static int no_memory(void)
{
    log_error("no host memory to describe a GPU");
    return -ENOMEM;
}

static int check_device(int device)
{
    if (device >= 0 && device < device_count())
        return 0;
    if (device_count())
        log_error("no such GPU %d: this machine has %d", device, device_count());
    else
        log_error("no such GPU %d: %s", device, device_why_none());
    return -ENODEV;
}

static int get_entry(void **entry, const char *name)
{
    cudaDriverEntryPointQueryResult found;
    cudaError_t e = cudaGetDriverEntryPointByVersion(name, entry, DRIVER_API,
                                                     cudaEnableDefault, &found);
    if (e == cudaSuccess && found == cudaDriverEntryPointSuccess)
        return 0;
    cudaGetLastError();
    log_error(
        "the NVIDIA driver has no %s: GPU slices need a driver of CUDA 12.5 or later",
        name);
    return -ENOTSUP;
}

static int load_driver(struct driver *d)
{
    const struct {
        void *entry;
        const char *name;
    } wanted[] = {
        {&d->device_get, "cuDeviceGet"},
        {&d->get_resource, "cuDeviceGetDevResource"},
        {&d->split, "cuDevSmResourceSplitByCount"},
        {&d->describe, "cuDevResourceGenerateDesc"},
        {&d->ctx_create, "cuGreenCtxCreate"},
        {&d->ctx_destroy, "cuGreenCtxDestroy"},
        {&d->stream_create, "cuGreenCtxStreamCreate"},
        {&d->error_string, "cuGetErrorString"},
    };
    int err = 0;

    for (size_t i = 0; i < ARRAY_LEN(wanted) && !err; i++)
        err = get_entry((void **)wanted[i].entry, wanted[i].name);
    return err;
}

/* ---- The current GPU -------------------------------------------------------------------------- */

/* Whether the thread has a context. Without one, its "current" GPU is no more than the default, and
 * going back to it would start a GPU that nobody uses. */
static bool has_context(void)
{
    decltype(&cuCtxGetCurrent) get = NULL;
    cudaDriverEntryPointQueryResult found;
    CUcontext context = NULL;

    if (cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", (void **)&get, DRIVER_API,
                                         cudaEnableDefault, &found) != cudaSuccess ||
        !get) {
        cudaGetLastError();
        return true;
    }
    return get(&context) == CUDA_SUCCESS && context;
}

int device_enter(int device, int *before)
{
    int err = check_device(device);

    *before = -1;
    if (err)
        return err;
    if (!has_context() || cudaGetDevice(before) != cudaSuccess)
        *before = -1;
    if (*before == device)
        return 0;
    return check(cudaSetDevice(device), "use a GPU");
}

void device_leave(int before)
{
    int now;

    if (before >= 0 && (cudaGetDevice(&now) != cudaSuccess || now != before))
        cudaSetDevice(before);
}

/* The same for the length of a function here. */
struct scope {
    int before, err;
    explicit scope(int device) : before(-1), err(device_enter(device, &before))
    {
    }
    ~scope()
    {
        device_leave(before);
    }
};

int device_query(struct device_info *info, int device)
{
    scope use(device);
    cudaDeviceProp prop;

    if (use.err)
        return use.err;
    memset(info, 0, sizeof(*info));
    int err = check(cudaGetDeviceProperties(&prop, device), "describe a GPU");
    if (!err)
        err = check(cudaDeviceGetPCIBusId(info->pci, sizeof(info->pci), device),
                    "tell a GPU's PCI address");
    if (!err)
        err = check(cudaMemGetInfo(&info->mem_free, &info->mem_total),
                    "tell a GPU's memory");
    if (err)
        return err;
    for (char *c = info->pci; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(info->name, sizeof(info->name), "%.*s", (int)sizeof(info->name) - 1,
             prop.name);
    info->cc_major = prop.major;
    info->cc_minor = prop.minor;
    info->sm_count = prop.multiProcessorCount;
    return 0;
}

/* ---- Slices ----------------------------------------------------------------------------------- */

static int check_driver(const struct driver *d, CUresult e, const char *what, int device)
{
    const char *why = "unknown error";

    if (e == CUDA_SUCCESS)
        return 0;
    d->error_string(e, &why);
    log_error("GPU %d: CUDA cannot %s: %s", device, what, why);
    return e == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

/* How many slices of at least `sms` multiprocessors a GPU makes; 0 if none. */
static unsigned count_slices(const struct driver *d, const CUdevResource *all,
                             unsigned sms)
{
    unsigned groups = 0;

    if (d->split(NULL, &groups, all, NULL, 0, sms) != CUDA_SUCCESS)
        return 0;
    return groups;
}

/* The largest slices of which there are n: the hardware rounds what is asked for up to its own
 * granularity, so ask for ever fewer. -EINVAL, logged. */
static int choose_slice(const struct driver *d, const CUdevResource *all, int device,
                        int n, unsigned *sms)
{
    for (*sms = all->sm.smCount / (unsigned)n; *sms > 0; (*sms)--)
        if (count_slices(d, all, *sms) >= (unsigned)n)
            return 0;
    log_error("GPU %d of %u multiprocessors cannot be cut into %d slices: at most %u",
              device, all->sm.smCount, n, count_slices(d, all, 1));
    return -EINVAL;
}

static int create_slice(struct device_slices *s, int i, CUdevice dev, CUdevResource *part)
{
    const struct driver *d = &s->driver;
    CUdevResourceDesc desc;
    int err = check_driver(d, d->describe(&desc, part, 1), "describe a slice", s->device);

    if (!err)
        err = check_driver(
            d, d->ctx_create(&s->contexts[i], desc, dev, CU_GREEN_CTX_DEFAULT_STREAM),
            "make a slice", s->device);
    if (!err)
        err = check_driver(d,
                           d->stream_create((CUstream *)&s->streams[i], s->contexts[i],
                                            CU_STREAM_NON_BLOCKING, 0),
                           "make a slice's stream", s->device);
    return err;
}

static int cut(struct device_slices *s, int *sms)
{
    const struct driver *d = &s->driver;
    CUdevResource all, rest;
    CUdevice dev;
    unsigned groups = (unsigned)s->n, size;
    int err = load_driver(&s->driver);

    s->contexts = (CUgreenCtx *)calloc((size_t)s->n, sizeof(*s->contexts));
    CUdevResource *parts = (CUdevResource *)calloc((size_t)s->n, sizeof(*parts));
    if (!err && (!s->contexts || !parts))
        err = no_memory();
    if (!err)
        err = check_driver(d, d->device_get(&dev, s->device), "find it", s->device);
    if (!err)
        err = check_driver(d, d->get_resource(dev, &all, CU_DEV_RESOURCE_TYPE_SM),
                           "list its multiprocessors", s->device);
    if (!err)
        err = choose_slice(d, &all, s->device, s->n, &size);
    if (!err)
        err = check_driver(d, d->split(parts, &groups, &all, &rest, 0, size), "cut it",
                           s->device);
    for (int i = 0; i < s->n && !err; i++) {
        sms[i] = (int)parts[i].sm.smCount;
        err = create_slice(s, i, dev, &parts[i]);
    }
    free(parts);
    return err;
}

static int take_whole(struct device_slices *s, int *sms)
{
    int err =
        check(cudaDeviceGetAttribute(sms, cudaDevAttrMultiProcessorCount, s->device),
              "count a GPU's multiprocessors");
    return err ? err
               : check(cudaStreamCreateWithFlags(&s->streams[0], cudaStreamNonBlocking),
                       "make a stream");
}

int device_slices_create(struct device_slices **out, int device, int n, void **streams,
                         int *sms)
{
    scope use(device);
    int err = use.err;

    if (err)
        return err;
    if (n < 1) {
        log_error("GPU %d cannot be cut into %d slices", device, n);
        return -EINVAL;
    }
    struct device_slices *s = (struct device_slices *)calloc(1, sizeof(*s));
    if (!s)
        return no_memory();
    s->device = device;
    s->n = n;
    s->streams = (cudaStream_t *)calloc((size_t)n, sizeof(*s->streams));
    err = !s->streams ? no_memory() : n == 1 ? take_whole(s, sms) : cut(s, sms);
    if (err) {
        device_slices_destroy(s);
        return err;
    }
    for (int i = 0; i < n; i++)
        streams[i] = s->streams[i];
    *out = s;
    return 0;
}

void device_slices_destroy(struct device_slices *s)
{
    if (!s)
        return;
    scope use(s->device);
    for (int i = 0; i < s->n; i++) {
        if (s->streams && s->streams[i])
            cudaStreamDestroy(s->streams[i]);
        if (s->contexts && s->contexts[i])
            s->driver.ctx_destroy(s->contexts[i]);
    }
    free(s->streams);
    free(s->contexts);
    free(s);
}

/* ---- Streams and events ----------------------------------------------------------------------- */

int device_stream_create(void **stream, int device, bool high)
{
    scope use(device);
    int least = 0, greatest = 0;

    if (use.err)
        return use.err;
    int err = check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                    "tell stream priorities");
    return err ? err
               : check(cudaStreamCreateWithPriority((cudaStream_t *)stream,
                                                    cudaStreamNonBlocking,
                                                    high ? greatest : least),
                       "make a stream");
}

void device_stream_destroy(void *stream)
{
    if (stream)
        cudaStreamDestroy((cudaStream_t)stream);
}

int device_stream_sync(void *stream)
{
    return check(cudaStreamSynchronize((cudaStream_t)stream), "finish a stream");
}

int device_event_create(void **event, int device, bool timed)
{
    scope use(device);

    if (use.err)
        return use.err;
    return check(
        cudaEventCreateWithFlags((cudaEvent_t *)event,
                                 timed ? cudaEventDefault : cudaEventDisableTiming),
        "make an event");
}

void device_event_destroy(void *event)
{
    if (event)
        cudaEventDestroy((cudaEvent_t)event);
}

int device_event_record(void *event, void *stream)
{
    return check(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream),
                 "record an event");
}

int device_stream_wait(void *stream, void *event)
{
    return check(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
                 "wait for an event");
}

int device_event_sync(void *event)
{
    return check(cudaEventSynchronize((cudaEvent_t)event), "wait for an event");
}

int device_event_query(void *event)
{
    cudaError_t e = cudaEventQuery((cudaEvent_t)event);

    if (e == cudaErrorNotReady) {
        cudaGetLastError();
        return 0;
    }
    return e == cudaSuccess ? 1 : check(e, "ask for an event");
}

int device_event_elapsed(double *seconds, void *a, void *b)
{
    float ms = 0;
    int err = check(cudaEventElapsedTime(&ms, (cudaEvent_t)a, (cudaEvent_t)b),
                    "tell the time between two events");
    *seconds = ms * 1e-3;
    return err;
}

/* ---- Memory ----------------------------------------------------------------------------------- */

int device_alloc(void **p, int device, size_t bytes)
{
    scope use(device);
    size_t room = 0, total = 0;

    if (use.err)
        return use.err;
    cudaError_t e = cudaMalloc(p, bytes);
    if (e != cudaErrorMemoryAllocation)
        return check(e, "allocate memory");
    cudaGetLastError();
    cudaMemGetInfo(&room, &total);
    log_error("GPU %d is out of memory: %zu bytes wanted, %zu of %zu free", device, bytes,
              room, total);
    return -ENOMEM;
}

void device_free(int device, void *p)
{
    if (!p)
        return;
    scope use(device);
    cudaFree(p);
}

int device_host_alloc(void **p, size_t bytes)
{
    if (!device_count()) {
        log_error("no page-locked memory: %s", device_why_none());
        return -ENODEV;
    }
    cudaError_t e = cudaHostAlloc(p, bytes, cudaHostAllocPortable);
    if (e != cudaErrorMemoryAllocation)
        return check(e, "allocate page-locked memory");
    cudaGetLastError();
    log_error("out of page-locked host memory: %zu bytes wanted", bytes);
    return -ENOMEM;
}

void device_host_free(void *p)
{
    if (p)
        cudaFreeHost(p);
}

int device_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    return check(
        cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, (cudaStream_t)stream),
        "copy");
}

/* ---- Peers ------------------------------------------------------------------------------------ */

int device_peer_can(int a, int b)
{
    int can = 0, err = check_device(a);

    if (!err)
        err = check_device(b);
    if (!err && a != b)
        err = check(cudaDeviceCanAccessPeer(&can, a, b),
                    "tell whether GPUs reach each other");
    return err ? err : a == b || can;
}

int device_peer_enable(int a, int b)
{
    int can = device_peer_can(a, b);

    if (can <= 0 || a == b)
        return can;
    scope use(a);
    if (use.err)
        return use.err;
    cudaError_t e = cudaDeviceEnablePeerAccess(b, 0);
    if (e == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
        return 1;
    }
    int err = check(e, "let GPUs reach each other");
    return err ? err : 1;
}

int device_peer_rank(int a, int b)
{
    int rank = 0, err = check_device(a);

    if (!err)
        err = check_device(b);
    if (!err)
        err = check(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, a, b),
                    "rank the link of two GPUs");
    return err ? err : rank;
}
