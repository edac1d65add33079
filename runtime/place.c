/* The machine: hwloc's topology, binding of threads and memory. */
#include "runtime/place.h"

#include <errno.h>
#include <hwloc.h>
#include <hwloc/linux.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/device.h"

struct place {
    hwloc_topology_t topology;
    hwloc_bitmap_t usable; /* processors */
    bool here;             /* the topology is this machine's */
    bool imagined;         /* place_imagine */
    int gpus;

    pthread_mutex_t lock; /* of what follows: binding is called by every lane's thread */
    char (*warned)[64]; /* (n_warned) lanes, or "" for the machine, that were warned of */
    int n_warned;
};

static int no_memory(void)
{
    log_error("no memory for the machine's topology");
    return -ENOMEM;
}

/* What the process may run on, as taskset shows it: a container's cpuset is in it. */
static int read_affinity(hwloc_bitmap_t set)
{
    int err = EINVAL;

    /* The kernel refuses a mask that is smaller than its own, whose size it does not tell. */
    for (int cpus = 1024; err == EINVAL && cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *mask = CPU_ALLOC((size_t)cpus);
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        if (!mask)
            return no_memory();
        err = sched_getaffinity(0, size, mask) ? errno : 0;
        for (int i = 0; !err && i < cpus; i++)
            if (CPU_ISSET_S((size_t)i, size, mask))
                hwloc_bitmap_set(set, (unsigned)i);
        CPU_FREE(mask);
    }
    if (err)
        log_error("the system does not say which processors may be used: %s",
                  strerror(err));
    return -err;
}

/* GPUs and the like are found by the PCI bus alone: hwloc's own use of the drivers would start them
 * too early, and some of them are slow. */
static void leave_out_drivers(hwloc_topology_t t)
{
    static const char *const components[] = {"cuda", "nvml", "opencl",
                                             "gl",   "rsmi", "levelzero"};
    for (size_t i = 0; i < ARRAY_LEN(components); i++)
        hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                      components[i]);
}

static int load_topology(struct place *p)
{
    const char *file = getenv("HWLOC_XMLFILE");

    /* hwloc would quietly take this machine instead. */
    if (file && access(file, R_OK)) {
        int err = errno;
        log_error("HWLOC_XMLFILE: cannot read %s: %s", file, strerror(err));
        return -err;
    }
    if (hwloc_topology_init(&p->topology)) {
        p->topology = NULL;
        return no_memory();
    }
    leave_out_drivers(p->topology);
    hwloc_topology_set_io_types_filter(p->topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    errno = 0;
    if (hwloc_topology_load(p->topology)) {
        log_error("hwloc cannot read %s: %s", file ? file : "this machine",
                  errno ? strerror(errno) : "not a topology");
        return errno ? -errno : -EINVAL;
    }
    p->here = hwloc_topology_is_thissystem(p->topology);
    return 0;
}

int place_open(struct place **out)
{
    struct place *p = calloc(1, sizeof(*p));

    if (!p)
        return no_memory();
    pthread_mutex_init(&p->lock, NULL);
    p->gpus = device_count();
    p->usable = hwloc_bitmap_alloc();
    int err = p->usable ? read_affinity(p->usable) : no_memory();
    if (!err)
        err = load_topology(p);
    if (err) {
        place_close(p);
        return err;
    }
    *out = p;
    return 0;
}

void place_close(struct place *p)
{
    if (!p)
        return;
    if (p->topology)
        hwloc_topology_destroy(p->topology);
    hwloc_bitmap_free(p->usable);
    pthread_mutex_destroy(&p->lock);
    free(p->warned);
    free(p);
}

int place_gpus(const struct place *p)
{
    return p->gpus;
}

const char *place_why_none(const struct place *p)
{
    return p->imagined ? "this topology has none" : device_why_none();
}

/* Adds a processor to the list that place_cpus makes. */
static void add_cpu(int *cpus, int *n, hwloc_bitmap_t rest, unsigned cpu)
{
    if (!hwloc_bitmap_isset(rest, cpu))
        return;
    hwloc_bitmap_clr(rest, cpu);
    cpus[(*n)++] = cpu;
}

int place_cpus(const struct place *p, int **cpus, int *n)
{
    int count = hwloc_bitmap_weight(p->usable), found = 0;
    int *list = malloc((size_t)(count > 0 ? count : 1) * sizeof(*list));
    hwloc_bitmap_t rest = hwloc_bitmap_dup(p->usable);
    hwloc_obj_t pu = NULL;

    if (!list || !rest) {
        free(list);
        hwloc_bitmap_free(rest);
        return no_memory();
    }
    /* hwloc's own order keeps neighbours together; processors that it does not show come last. */
    while ((pu = hwloc_get_next_obj_by_type(p->topology, HWLOC_OBJ_PU, pu)))
        add_cpu(list, &found, rest, pu->os_index);
    for (int cpu = hwloc_bitmap_first(rest); cpu >= 0; cpu = hwloc_bitmap_next(rest, cpu))
        list[found++] = cpu;
    hwloc_bitmap_free(rest);
    *cpus = list;
    *n = found;
    return 0;
}

/* ---- Where lanes lie -------------------------------------------------------------------------- */

/* The processors near a PCI device, into set. */
static void pci_cpus(const struct place *p, const char *pci, hwloc_bitmap_t set)
{
    char path[128];
    hwloc_obj_t obj = hwloc_get_pcidev_by_busidstring(p->topology, pci);

    hwloc_bitmap_zero(set);
    if (obj)
        obj = hwloc_get_non_io_ancestor_obj(p->topology, obj);
    if (obj) {
        hwloc_bitmap_copy(set, obj->cpuset);
        return;
    }
    /* hwloc built without PCI support: the kernel knows as well. */
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.31s/local_cpus", pci);
    if (p->here && hwloc_linux_read_path_as_cpumask(path, set))
        hwloc_bitmap_zero(set);
}

/* The next NVIDIA GPU of the topology after one, NULL to begin. */
static hwloc_obj_t next_gpu(const struct place *p, hwloc_obj_t obj)
{
    while ((obj = hwloc_get_next_pcidev(p->topology, obj)))
        if (obj->attr->pcidev.vendor_id == 0x10de &&
            obj->attr->pcidev.class_id >> 8 == 0x03)
            break;
    return obj;
}

/* The PCI address of a GPU; "" if there is no such one. */
static void gpu_pci(const struct place *p, char pci[32], int device)
{
    struct device_info info;
    hwloc_obj_t obj = NULL;

    *pci = '\0';
    if (!p->imagined) {
        if (!device_query(&info, device))
            snprintf(pci, 32, "%s", info.pci);
        return;
    }
    for (int i = 0; i <= device && (i == 0 || obj); i++)
        obj = next_gpu(p, obj);
    if (obj)
        snprintf(pci, 32, "%04x:%02x:%02x.%x", obj->attr->pcidev.domain,
                 obj->attr->pcidev.bus, obj->attr->pcidev.dev, obj->attr->pcidev.func);
}

/* The processors of a lane, or near its GPU; none if that is unknown. */
static void lane_cpus(const struct place *p, const struct lane_spec *spec,
                      hwloc_bitmap_t set)
{
    char pci[32];

    hwloc_bitmap_zero(set);
    for (int i = 0; i < spec->n_cpus; i++)
        hwloc_bitmap_set(set, (unsigned)spec->cpus[i]);
    if (spec->kind != LANE_CUDA)
        return;
    gpu_pci(p, pci, spec->device);
    pci_cpus(p, pci, set);
}

/* Whether this is the first warning about a lane, or about the machine if name is "". */
static bool first_warning(struct place *p, const char *name)
{
    bool first = true;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < p->n_warned && first; i++)
        first = strcmp(p->warned[i], name) != 0;
    char(*warned)[64] =
        first ? realloc(p->warned, ((size_t)p->n_warned + 1) * sizeof(*warned)) : NULL;
    if (warned) {
        p->warned = warned;
        snprintf(warned[p->n_warned++], sizeof(*warned), "%s", name);
    }
    pthread_mutex_unlock(&p->lock);
    return first;
}

/* Whether there is anything to bind to; warns if not. */
static bool can_bind(struct place *p)
{
    if (!p->here && first_warning(p, ""))
        log_warn("the topology is another machine's: threads and buffers are not bound");
    return p->here;
}

int place_bind_thread(struct place *p, const struct lane_spec *spec)
{
    hwloc_bitmap_t set;
    const char *why = NULL;

    if (!can_bind(p))
        return 0;
    set = hwloc_bitmap_alloc();
    if (!set)
        return no_memory();
    lane_cpus(p, spec, set);
    if (spec->kind == LANE_CPU)
        hwloc_bitmap_only(set, (unsigned)spec->cpus[0]);
    hwloc_bitmap_and(set, set, p->usable);
    if (hwloc_bitmap_iszero(set))
        why = "no usable processor is known to be near it";
    else if (hwloc_set_cpubind(p->topology, set, HWLOC_CPUBIND_THREAD))
        why = strerror(errno);
    hwloc_bitmap_free(set);
    if (why && first_warning(p, spec->name))
        log_warn("lane %s: its threads are not bound: %s", spec->name, why);
    return 0;
}

int place_bind_memory(struct place *p, const struct lane_spec *spec, void *buffer,
                      size_t bytes)
{
    hwloc_bitmap_t set;

    if (!can_bind(p) || hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_NUMANODE) < 2)
        return 0;
    set = hwloc_bitmap_alloc();
    if (!set)
        return no_memory();
    lane_cpus(p, spec, set);
    if (!hwloc_bitmap_iszero(set) && bytes &&
        hwloc_set_area_membind(p->topology, buffer, bytes, set, HWLOC_MEMBIND_BIND,
                               HWLOC_MEMBIND_MIGRATE) &&
        first_warning(p, spec->name))
        log_warn("lane %s: its memory is not bound: %s", spec->name, strerror(errno));
    hwloc_bitmap_free(set);
    return 0;
}

/* The object of a type, a NUMA node or a package, that all of a lane belongs to; its OS number, -1 if it is several or
 * none. */
static int lane_holder(const struct place *p, const struct lane_spec *spec,
                       hwloc_obj_type_t type)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    hwloc_obj_t obj = NULL;
    int index = -1;

    if (!set)
        return -1;
    lane_cpus(p, spec, set);
    while (!hwloc_bitmap_iszero(set) && index < 0 &&
           (obj = hwloc_get_next_obj_by_type(p->topology, type, obj)))
        if (hwloc_bitmap_isincluded(set, obj->cpuset))
            index = (int)obj->os_index;
    hwloc_bitmap_free(set);
    return index;
}

int place_lane_node(struct place *p, const struct lane_spec *spec)
{
    return lane_holder(p, spec, HWLOC_OBJ_NUMANODE);
}

/* ---- For people ------------------------------------------------------------------------------- */

static void copy_info(char *text, size_t size, hwloc_obj_t obj, const char *key)
{
    const char *value = obj ? hwloc_obj_get_info_by_name(obj, key) : NULL;

    if (value && !*text)
        snprintf(text, size, "%s", value);
}

static long number_info(hwloc_obj_t obj, const char *key)
{
    const char *value = hwloc_obj_get_info_by_name(obj, key);
    return value ? strtol(value, NULL, 10) : 0;
}

static int describe_node(const struct place *p, struct place_node *node, hwloc_obj_t obj)
{
    hwloc_bitmap_t set = hwloc_bitmap_dup(obj->cpuset);
    int err = 0;

    *node = (struct place_node){.index = (int)obj->os_index,
                                .memory = obj->attr->numanode.local_memory};
    if (!set)
        return no_memory();
    hwloc_bitmap_and(set, set, p->usable);
    int n = hwloc_bitmap_weight(set);
    node->cpus = malloc((size_t)(n > 0 ? n : 1) * sizeof(*node->cpus));
    if (node->cpus) {
        for (int cpu = hwloc_bitmap_first(set); cpu >= 0;
             cpu = hwloc_bitmap_next(set, cpu))
            node->cpus[node->n_cpus++] = cpu;
    } else {
        err = no_memory();
    }
    hwloc_bitmap_free(set);
    return err;
}

static int describe_nodes(const struct place *p, struct place_machine *m)
{
    int n = hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_NUMANODE), err = 0;
    hwloc_obj_t obj = NULL;

    m->nodes = calloc((size_t)(n > 0 ? n : 1), sizeof(*m->nodes));
    if (!m->nodes)
        return no_memory();
    while (!err &&
           (obj = hwloc_get_next_obj_by_type(p->topology, HWLOC_OBJ_NUMANODE, obj)))
        err = describe_node(p, &m->nodes[m->n_nodes++], obj);
    return err;
}

/* What a topology keeps of a GPU: the devices that its makers' libraries found below the PCI one. */
static void describe_stored_gpu(struct place_gpu *gpu, hwloc_obj_t obj)
{
    for (hwloc_obj_t os = obj->io_first_child; os; os = os->next_sibling) {
        copy_info(gpu->name, sizeof(gpu->name), os, "GPUModel");
        if (!gpu->sms)
            gpu->sms = (int)number_info(os, "CUDAMultiProcessors");
        if (!gpu->memory)
            gpu->memory = (size_t)number_info(os, "CUDAGlobalMemorySize") << 10;
    }
    copy_info(gpu->name, sizeof(gpu->name), obj, "PCIDevice");
}

static int describe_gpu(struct place *p, struct place_gpu *gpu, int device)
{
    struct lane_spec spec = {.kind = LANE_CUDA, .device = device};
    struct device_info info;

    gpu_pci(p, gpu->pci, device);
    gpu->node = place_lane_node(p, &spec);
    gpu->package = lane_holder(p, &spec, HWLOC_OBJ_PACKAGE);
    if (p->imagined) {
        describe_stored_gpu(gpu, hwloc_get_pcidev_by_busidstring(p->topology, gpu->pci));
        return 0;
    }
    int err = device_query(&info, device);
    if (!err) {
        snprintf(gpu->name, sizeof(gpu->name), "%.*s", (int)sizeof(gpu->name) - 1,
                 info.name);
        gpu->sms = info.sm_count;
        gpu->memory = info.mem_total;
    }
    return err;
}

static int describe_gpus(struct place *p, struct place_machine *m)
{
    int err = 0;

    m->n_gpus = p->gpus;
    m->gpus = calloc((size_t)(p->gpus > 0 ? p->gpus : 1), sizeof(*m->gpus));
    if (!m->gpus)
        return no_memory();
    for (int i = 0; i < p->gpus && !err; i++)
        err = describe_gpu(p, &m->gpus[i], i);
    return err;
}

/* Which GPU of the topology an object of a distance matrix belongs to; -1: none. */
static int gpu_of(const struct place *p, hwloc_obj_t obj)
{
    hwloc_obj_t gpu = NULL;
    int i = 0;

    while (obj && obj->type == HWLOC_OBJ_OS_DEVICE)
        obj = obj->parent;
    while ((gpu = next_gpu(p, gpu)) && gpu != obj)
        i++;
    return obj && gpu ? i : -1;
}

/* A topology's NVLinks between GPUs; what goes through a switch counts as between the GPUs. */
static int describe_nvlink(const struct place *p, struct place_machine *m)
{
    struct hwloc_distances_s *d = NULL;
    unsigned found = 1;

    if (!m->n_gpus ||
        hwloc_distances_get_by_name(p->topology, "NVLinkBandwidth", &found, &d, 0) ||
        !found)
        return 0;
    m->nvlink = calloc((size_t)m->n_gpus * (size_t)m->n_gpus, sizeof(*m->nvlink));
    if (!m->nvlink) {
        hwloc_distances_release(p->topology, d);
        return no_memory();
    }
    if (!hwloc_distances_transform(p->topology, d,
                                   HWLOC_DISTANCES_TRANSFORM_MERGE_SWITCH_PORTS, NULL, 0))
        hwloc_distances_transform(p->topology, d,
                                  HWLOC_DISTANCES_TRANSFORM_TRANSITIVE_CLOSURE, NULL, 0);
    for (unsigned i = 0; i < d->nbobjs; i++)
        for (unsigned j = 0; j < d->nbobjs; j++) {
            int a = gpu_of(p, d->objs[i]), b = gpu_of(p, d->objs[j]);
            if (a >= 0 && b >= 0 && a != b)
                m->nvlink[a * m->n_gpus + b] = (double)d->values[i * d->nbobjs + j] * 1e6;
        }
    hwloc_distances_release(p->topology, d);
    return 0;
}

/* The driver's word on the links between its GPUs. */
static int describe_peers(struct place_machine *m)
{
    int n = m->n_gpus, err = 0;

    if (n < 2)
        return 0;
    m->peers = malloc((size_t)n * (size_t)n * sizeof(*m->peers));
    if (!m->peers)
        return no_memory();
    for (int i = 0; i < n * n && err >= 0; i++) {
        int a = i / n, b = i % n;
        err = a == b ? 0 : device_peer_can(a, b);
        if (err > 0)
            err = m->peers[i] = device_peer_rank(a, b);
        else
            m->peers[i] = -1;
    }
    return err < 0 ? err : 0;
}

int place_describe(struct place *p, struct place_machine *m)
{
    hwloc_obj_t root = hwloc_get_root_obj(p->topology);

    *m = (struct place_machine){.here = p->here, .memory = root->total_memory};
    copy_info(m->name, sizeof(m->name), root, "DMIProductName");
    copy_info(m->name, sizeof(m->name), root, "PlatformModel");
    copy_info(m->cpu, sizeof(m->cpu),
              hwloc_get_obj_by_type(p->topology, HWLOC_OBJ_PACKAGE, 0), "CPUModel");
    m->packages = hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_PACKAGE);
    m->cores = hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_CORE);
    m->processors = hwloc_get_nbobjs_by_type(p->topology, HWLOC_OBJ_PU);
    int err = describe_nodes(p, m);
    if (!err)
        err = describe_gpus(p, m);
    if (!err && p->imagined)
        err = describe_nvlink(p, m);
    else if (!err)
        err = describe_peers(m);
    if (err)
        place_machine_free(m);
    return err;
}

void place_machine_free(struct place_machine *m)
{
    for (int i = 0; i < m->n_nodes; i++)
        free(m->nodes[i].cpus);
    free(m->nodes);
    free(m->gpus);
    free(m->nvlink);
    free(m->peers);
    *m = (struct place_machine){0};
}

void place_imagine(struct place *p)
{
    hwloc_obj_t gpu = NULL;

    if (p->here)
        return;
    p->imagined = true;
    hwloc_bitmap_copy(p->usable, hwloc_topology_get_allowed_cpuset(p->topology));
    for (p->gpus = 0; (gpu = next_gpu(p, gpu));)
        p->gpus++;
}
