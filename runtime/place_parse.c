/* The --devices list: lanes by name. */
#include "runtime/place.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/assign.h"

#define MAX_SLICES 64 /* of one GPU; the hardware allows fewer, and says so itself */

/* The lanes parsed so far, and what they may use. */
struct list {
    struct place *place;
    int *cpus; /* (n_cpus) */
    int n_cpus;
    struct lane_spec *specs; /* (n) */
    int n, room;
};

/* A message may quote the user's list: nothing but printable characters of it are shown. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (!isprint((unsigned char)*text))
            *text = '?';
}

/* One line: which item, and what is wrong with it. */
static int __attribute__((format(printf, 2, 3)))
refuse(const char *item, const char *format, ...)
{
    char shown[64], why[256];
    va_list args;

    snprintf(shown, sizeof(shown), "%s", item);
    if (strlen(item) >= sizeof(shown))
        strcpy(shown + sizeof(shown) - 4, "...");
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    make_printable(shown);
    make_printable(why);
    log_error("--devices \"%s\": %s", shown, why);
    return -EINVAL;
}

static struct lane_spec *add_lane(struct list *l, enum lane_kind kind)
{
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 8;
        struct lane_spec *specs = realloc(l->specs, (size_t)room * sizeof(*specs));
        if (!specs) {
            log_error("no memory for a list of lanes");
            return NULL;
        }
        l->specs = specs;
        l->room = room;
    }
    struct lane_spec *s = &l->specs[l->n++];
    *s = (struct lane_spec){.kind = kind, .device = -1, .n_slices = 1};
    return s;
}

/* A decimal number at *text, which moves behind it. -EINVAL if there is none, -ERANGE, logged by
 * neither. */
static int read_number(int *value, const char **text)
{
    const char *t = *text;
    long v = 0;

    if (!isdigit((unsigned char)*t))
        return -EINVAL;
    for (; isdigit((unsigned char)*t); t++) {
        v = v * 10 + (*t - '0');
        if (v > INT_MAX)
            return -ERANGE;
    }
    *text = t;
    *value = (int)v;
    return 0;
}

static bool has_cpu(const struct list *l, int cpu)
{
    for (int i = 0; i < l->n_cpus; i++)
        if (l->cpus[i] == cpu)
            return true;
    return false;
}

static int compare(const void *a, const void *b)
{
    const int *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int refuse_cpu(const struct list *l, const char *item, const char *which)
{
    char text[128];
    int *sorted = malloc((size_t)l->n_cpus * sizeof(*sorted));

    if (!sorted)
        return refuse(item, "no processor %.12s for this process", which);
    memcpy(sorted, l->cpus, (size_t)l->n_cpus * sizeof(*sorted));
    qsort(sorted, (size_t)l->n_cpus, sizeof(*sorted), compare);
    place_cpus_text(text, sizeof(text), sorted, l->n_cpus, ',');
    free(sorted);
    return refuse(item, "no processor %.12s for this process: it may use %s", which,
                  text);
}

/* Adds a processor to the lane that is being read, the last of the list. */
static int take_cpu(struct list *l, const char *item, int cpu)
{
    char which[16];
    struct lane_spec *s = &l->specs[l->n - 1];

    snprintf(which, sizeof(which), "%d", cpu);
    if (!has_cpu(l, cpu))
        return refuse_cpu(l, item, which);
    for (int i = 0; i < l->n; i++)
        for (int j = 0; j < l->specs[i].n_cpus; j++) {
            if (l->specs[i].cpus[j] != cpu)
                continue;
            if (i == l->n - 1)
                return refuse(item, "processor %d is named twice", cpu);
            log_info("lanes %d and %d share processor %d: they take turns", i, l->n - 1,
                     cpu);
        }
    int *cpus = realloc(s->cpus, ((size_t)s->n_cpus + 1) * sizeof(*cpus));
    if (!cpus) {
        log_error("no memory for a list of processors");
        return -ENOMEM;
    }
    s->cpus = cpus;
    s->cpus[s->n_cpus++] = cpu;
    return 0;
}

/* "3" or "0-7". */
static int read_cpu_range(struct list *l, const char *item, const char **text)
{
    const char *start = *text;
    int first, last, err = read_number(&first, text);

    last = first;
    if (!err && **text == '-') {
        start = ++*text;
        err = read_number(&last, text);
    }
    if (err == -ERANGE)
        return refuse_cpu(l, item, start);
    if (err)
        return refuse(item,
                      "a processor number is missing; write cpu:0, cpu:0-7 or cpu:0+2");
    if (last < first)
        return refuse(item, "the range %d-%d runs backwards", first, last);
    for (int cpu = first; !err; cpu++) {
        err = take_cpu(l, item, cpu);
        if (cpu == last)
            break;
    }
    return err;
}

static int read_cpu_lane(struct list *l, const char *item, const char *text)
{
    struct lane_spec *s = add_lane(l, LANE_CPU);
    int err;

    if (!s)
        return -ENOMEM;
    while (!(err = read_cpu_range(l, item, &text)) && *text == '+')
        text++;
    if (!err && *text)
        return refuse(item, "cannot read \"%.16s\"; write cpu:0, cpu:0-7 or cpu:0+2",
                      text);
    if (err)
        return err;
    size_t len = strlen(item);
    bool fits = len < sizeof(s->name);
    snprintf(s->name, sizeof(s->name), "%.*s%s",
             fits ? (int)len : (int)sizeof(s->name) - 4, item, fits ? "" : "...");
    return 0;
}

static int add_gpu_lanes(struct list *l, const char *item, int device, int slices)
{
    for (int i = 0; i < l->n; i++)
        if (l->specs[i].kind == LANE_CUDA && l->specs[i].device == device)
            return refuse(item, "GPU %d is named twice", device);
    for (int i = 0; i < slices; i++) {
        struct lane_spec *s = add_lane(l, LANE_CUDA);
        if (!s)
            return -ENOMEM;
        s->device = device;
        s->slice = i;
        s->n_slices = slices;
        if (slices == 1)
            snprintf(s->name, sizeof(s->name), "cuda:%d", device);
        else
            snprintf(s->name, sizeof(s->name), "cuda:%d/%d.%d", device, slices, i);
    }
    return 0;
}

static int refuse_gpu(const struct list *l, const char *item)
{
    int n = place_gpus(l->place);

    if (n == 0)
        return refuse(item, "no such GPU: %s", place_why_none(l->place));
    return refuse(item, "no such GPU: this machine has %d", n);
}

static int read_gpu_lanes(struct list *l, const char *item, const char *text)
{
    static const char grammar[] = "write cuda:0, or cuda:0/4 for four slices";
    int device, slices = 1, err = read_number(&device, &text);

    if (err == -EINVAL)
        return refuse(item, "a GPU number is missing; %s", grammar);
    if (err || device >= place_gpus(l->place))
        return refuse_gpu(l, item);
    if (*text == '/') {
        text++;
        err = read_number(&slices, &text);
        if (err == -EINVAL)
            return refuse(item, "the number of slices is missing; %s", grammar);
        if (err || slices < 1 || slices > MAX_SLICES)
            return refuse(item, "a GPU makes 1 to %d slices", MAX_SLICES);
    }
    if (*text)
        return refuse(item, "cannot read \"%.16s\"; %s", text, grammar);
    return add_gpu_lanes(l, item, device, slices);
}

static int read_item(struct list *l, const char *item)
{
    if (!strncmp(item, "cpu:", 4))
        return read_cpu_lane(l, item, item + 4);
    if (!strncmp(item, "cuda:", 5))
        return read_gpu_lanes(l, item, item + 5);
    if (!*item)
        return refuse(
            item, "a lane is missing; name lanes like cuda:0,cuda:1 or cpu:0,cpu:1-3");
    return refuse(item, "no kind of lane; there are cuda:0, cuda:0/4, cpu:0 and cpu:0-7");
}

static int read_list(struct list *l, const char *list)
{
    int err = 0;

    for (const char *item = list; !err;) {
        size_t len = strcspn(item, ",");
        char *copy = strndup(item, len);
        if (!copy) {
            log_error("no memory for a list of lanes");
            return -ENOMEM;
        }
        err = read_item(l, copy);
        free(copy);
        if (!item[len])
            break;
        item += len + 1;
    }
    return err;
}

/* A CPU lane of some of the usable processors. */
static int offer_cpu_lane(struct list *l, const int *cpus, int n)
{
    struct lane_spec *s = add_lane(l, LANE_CPU);

    if (!s)
        return -ENOMEM;
    s->cpus = malloc((size_t)n * sizeof(*s->cpus));
    if (!s->cpus) {
        log_error("no memory for a list of processors");
        return -ENOMEM;
    }
    memcpy(s->cpus, cpus, (size_t)n * sizeof(*s->cpus));
    s->n_cpus = n;
    qsort(s->cpus, (size_t)n, sizeof(*s->cpus), compare);
    strcpy(s->name, "cpu:");
    place_cpus_text(s->name + 4, sizeof(s->name) - 4, s->cpus, n, '+');
    return 0;
}

/* Every GPU, neighbours by their links. */
static int offer_gpu_lanes(struct list *l)
{
    struct place_machine m;
    const char *basis;
    int err = place_describe(l->place, &m);

    if (err)
        return err;
    int *order = calloc((size_t)m.n_gpus, sizeof(*order));
    err = order ? assign_chain(order, &basis, &m, m.n_gpus, false)
                : log_no_memory("the order of the GPUs");
    for (int i = 0; i < m.n_gpus && !err; i++)
        err = add_gpu_lanes(l, "auto", order[i], 1);
    free(order);
    place_machine_free(&m);
    return err;
}

/* What to use when nobody says: every GPU, else two halves of the processors. */
static int offer_lanes(struct list *l)
{
    int half = (l->n_cpus + 1) / 2;

    if (place_gpus(l->place))
        return offer_gpu_lanes(l);
    int err = offer_cpu_lane(l, l->cpus, half);
    if (!err && l->n_cpus > half)
        err = offer_cpu_lane(l, l->cpus + half, l->n_cpus - half);
    return err;
}

int place_parse(struct place *p, struct lane_spec **specs, int *n, const char *list)
{
    struct list l = {.place = p};
    int err = place_cpus(p, &l.cpus, &l.n_cpus);

    if (err)
        return err;
    err = !list || !strcmp(list, "auto") ? offer_lanes(&l) : read_list(&l, list);
    free(l.cpus);
    if (err) {
        lane_specs_free(l.specs, l.n);
        return err;
    }
    *specs = l.specs;
    *n = l.n;
    return 0;
}

void lane_specs_free(struct lane_spec *specs, int n)
{
    for (int i = 0; i < n; i++)
        free(specs[i].cpus);
    free(specs);
}

void place_cpus_text(char *text, size_t size, const int *cpus, int n, char plus)
{
    size_t used = 0;

    *text = '\0';
    for (int i = 0, end; i < n; i = end) {
        char range[32];
        for (end = i + 1; end < n && cpus[end] == cpus[end - 1] + 1;)
            end++;
        int len = snprintf(range, sizeof(range), end - i > 1 ? "%.1s%d-%d" : "%.1s%d",
                           i ? (char[]){plus, 0} : "", cpus[i], cpus[end - 1]);
        if (used + (size_t)len + (end < n ? 4 : 1) > size) {
            snprintf(text + used, size - used, "...");
            return;
        }
        memcpy(text + used, range, (size_t)len + 1);
        used += (size_t)len;
    }
}
