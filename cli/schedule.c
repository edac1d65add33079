/* penstock schedule: make, check, simulate, draw and compare schedules. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/error.h"
#include "cli/files.h"
#include "cli/options.h"
#include "schedules/check.h"
#include "schedules/compare.h"
#include "schedules/csv.h"
#include "schedules/draw.h"

enum {
    OPT_COST = OPT_OWN,
    OPT_COSTS,
    OPT_PAIR_COST,
    OPT_LATENCY,
    OPT_CAP,
    OPT_FORMAT,
    OPT_COMM
};

static const struct option flags[] = {
    {"lanes", required_argument, NULL, 'p'},
    {"micro-batches", required_argument, NULL, 'm'},
    {"chunks", required_argument, NULL, 'v'},
    {"group", required_argument, NULL, 'g'},
    {"cost", required_argument, NULL, OPT_COST},
    {"costs", required_argument, NULL, OPT_COSTS},
    {"pair-cost", required_argument, NULL, OPT_PAIR_COST},
    {"latency", required_argument, NULL, OPT_LATENCY},
    {"cap", required_argument, NULL, OPT_CAP},
    {"format", required_argument, NULL, OPT_FORMAT},
    {"comm", no_argument, NULL, OPT_COMM},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char usage_text[] =
    "usage: penstock schedule list\n"
    "       penstock schedule show NAME -p P -m M [flags]\n"
    "       penstock schedule show FILE.csv [-p P] [-m M] [flags]\n"
    "       penstock schedule check FILE [-p P] [-m M] [--cap A]\n"
    "       penstock schedule compare -p P -m M [flags]\n\n"
    "  -p, --lanes P           lanes\n"
    "  -m, --micro-batches M   micro-batches of a step\n"
    "  -v, --chunks V          chunks per lane, where the schedule takes any number\n"
    "  -g, --group G           interleaved: micro-batches of a group (default P)\n"
    "      --cost F,I,W        a lane's times of one micro-batch (default 1,1,1); B = I "
    "+ W\n"
    "      --costs FILE        times of the parts of the model, lines such as\n"
    "                            stage F I W [B]     one per equal part, from the input "
    "on\n"
    "                            latency T           bytes N           bandwidth R\n"
    "                            link FROM TO LATENCY [BANDWIDTH]      pair SHARE\n"
    "      --pair-cost T       a lane's time of an F&B pair (default the sum)\n"
    "      --latency T         of a hop between two lanes\n"
    "      --cap A             most activations a lane may hold, in those of one\n"
    "                          micro-batch on one lane\n"
    "      --format KIND       text, csv, json, svg or trace; compare: text, json or "
    "svg\n"
    "      --comm              with SEND and RECV ops\n"
    "  -o, --output FILE       (default: standard output)\n"
    "  -h, --help              this text\n";

enum format { TEXT, CSV, JSON, SVG, TRACE, FORMATS };
static const char *const format_names[FORMATS] = {"text", "csv", "json", "svg", "trace"};

struct request {
    struct sched_shape shape;
    struct sched_costs costs;
    double pair_cost; /* 0: the sum */
    const char *costs_file, *output;
    enum format format;
    bool comm;
};

/* What a writer needs. One of plan and comparison is there. */
struct result {
    const struct request *request;
    struct sched_plan plan;
    struct sched_sim sim;
    struct sched_comparison comparison;
};

static int fail(const char *what, const struct sched_error *err)
{
    cli_error("%s%s%s", what, *what ? ": " : "", err->text);
    return 1;
}

/* ---- Flags ------------------------------------------------------------------------- */

static int int_flag(int *out, const char *flag, const char *value, long high)
{
    long n;

    if (parse_int(&n, flag, value, 1, high))
        return 1;
    *out = (int)n;
    return 0;
}

/* "F,I,W" or "F,I,W,B" */
static int cost_flag(struct sched_cost *cost, const char *value)
{
    double *fields[] = {&cost->f, &cost->i, &cost->w, &cost->b};
    char copy[128], *save, *token;
    int n = 0;

    snprintf(copy, sizeof(copy), "%s", value);
    cost->b = 0;
    for (token = strtok_r(copy, ",", &save); token && n < 4;
         token = strtok_r(NULL, ",", &save)) {
        if (parse_real(fields[n], "--cost", token, n ? 0 : 1e-9, 1e9))
            return 1;
        n++;
    }
    if (n >= 3 && !token && strlen(value) < sizeof(copy))
        return 0;
    cli_error("--cost %s: expected three times F,I,W", value);
    return 1;
}

static int format_flag(enum format *format, const char *value)
{
    for (int i = 0; i < FORMATS; i++)
        if (!strcmp(value, format_names[i])) {
            *format = (enum format)i;
            return 0;
        }
    cli_error("--format %s: expected text, csv, json, svg or trace", value);
    return 1;
}

static int read_flag(struct request *r, int flag, const char *value)
{
    switch (flag) {
    case 'p':
        return int_flag(&r->shape.lanes, "-p", value, SCHED_MAX_LANES);
    case 'm':
        return int_flag(&r->shape.micro_batches, "-m", value, SCHED_MAX_CELLS);
    case 'v':
        return int_flag(&r->shape.chunks, "-v", value, SCHED_MAX_CHUNKS);
    case 'g':
        return int_flag(&r->shape.group, "-g", value, SCHED_MAX_CELLS);
    case OPT_COST:
        return cost_flag(&r->costs.lane, value);
    case OPT_COSTS:
        r->costs_file = value;
        return 0;
    case OPT_PAIR_COST:
        return parse_real(&r->pair_cost, "--pair-cost", value, 1e-9, 1e9) != 0;
    case OPT_LATENCY:
        return parse_real(&r->costs.latency, "--latency", value, 0, 1e9) != 0;
    case OPT_CAP:
        return parse_real(&r->shape.cap, "--cap", value, 1e-9, 1e9) != 0;
    case OPT_FORMAT:
        return format_flag(&r->format, value);
    case OPT_COMM:
        r->comm = true;
        return 0;
    case 'o':
        r->output = value;
        return 0;
    }
    return 1;
}

/* Costs from the file, under those of the flags. */
static int read_costs(struct request *r)
{
    struct sched_costs flags_costs = r->costs;
    struct sched_error err;
    FILE *f = fopen(r->costs_file, "r");
    int rc;

    if (!f) {
        cli_error("%s: %s", r->costs_file, strerror(errno));
        return 1;
    }
    rc = sched_costs_read(&r->costs, f, &err);
    fclose(f);
    if (rc)
        return fail(r->costs_file, &err);
    if (!r->costs.rows)
        r->costs.lane = flags_costs.lane;
    if (flags_costs.latency > 0)
        r->costs.latency = flags_costs.latency;
    return 0;
}

/* A pair's time on a lane, as the share of its two ops' that the simulator wants. */
static void set_pair(struct request *r)
{
    struct sched_cost sum =
        sched_costs_stage(&r->costs, r->shape.lanes, r->shape.lanes, 0);

    if (r->pair_cost <= 0)
        return;
    for (int s = 1; s < r->shape.lanes; s++) {
        struct sched_cost c =
            sched_costs_stage(&r->costs, r->shape.lanes, r->shape.lanes, s);
        sum.f += c.f;
        sum.b += c.b;
    }
    r->costs.pair = r->pair_cost * r->shape.lanes / (sum.f + sum.b);
}

/* 0, 1 after a line, -1 if help was asked for and given. */
static int read_flags(struct request *r, int argc, char **argv)
{
    int flag;

    r->costs = sched_costs_unit;
    while ((flag = next_flag(argc, argv, ":p:m:v:g:o:h", flags)) != -1) {
        if (flag == 'h') {
            fputs(usage_text, stdout);
            return -1;
        }
        if (flag == '?' || read_flag(r, flag, optarg))
            return 1;
    }
    return r->costs_file ? read_costs(r) : 0;
}

static int need_shape(const struct request *r, const char *command)
{
    if (r->shape.lanes && r->shape.micro_batches)
        return 0;
    cli_error("schedule %s needs -p LANES and -m MICRO_BATCHES", command);
    return 1;
}

/* ---- Output ------------------------------------------------------------------------ */

static int terminal_width(void)
{
    struct winsize size;

    if (!isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

static int write_result(FILE *f, void *arg)
{
    const struct result *r = arg;
    bool screen = !r->request->output && isatty(STDOUT_FILENO);

    switch (r->request->format) {
    case CSV:
        return sched_csv_write(&r->plan, f);
    case JSON:
        return r->plan.lanes ? sched_draw_json(&r->plan, &r->sim, f)
                             : sched_draw_compare_json(&r->comparison, f);
    case SVG:
        return r->plan.lanes ? sched_draw_svg(&r->plan, &r->sim, f)
                             : sched_draw_compare_svg(&r->comparison, f);
    case TRACE:
        return sched_draw_trace(&r->plan, &r->sim, f);
    default:
        break;
    }
    if (!r->plan.lanes)
        return sched_draw_compare_text(&r->comparison, f);
    return sched_draw_text(&r->plan, &r->sim, screen && !getenv("NO_COLOR"),
                           screen ? terminal_width() : 0, f);
}

static int put_result(struct result *r)
{
    if (r->request->output)
        return write_file(r->request->output, write_result, r) != 0;
    write_result(stdout, r);
    return close_stdout() != 0;
}

/* ---- Commands ---------------------------------------------------------------------- */

static int cmd_list(void)
{
    for (int i = 0; sched_list[i]; i++) {
        const struct schedule *s = sched_list[i];
        printf("%-12s %s\n%12s idle %s; peak A %s; limits: %s\n", s->name, s->about, "",
               s->idle, s->peak, s->limits);
    }
    return close_stdout() != 0;
}

/* Receive buffers are counted on the plan with its transfers, whether or not they are
 * shown. */
static int count_buffers(struct result *r, struct sched_error *err)
{
    struct sched_plan with;
    struct sched_edges edges = {0};
    int rc = sched_plan_copy(&with, &r->plan);

    if (rc)
        return sched_fail(err, rc, -1, -1, -1, "out of memory");
    rc = sched_comm_insert(&with, err);
    if (!rc) {
        rc = sched_edges_init(&edges, &with);
        if (rc)
            sched_fail(err, rc, -1, -1, -1, "out of memory");
    }
    for (int i = 0; i < edges.n; i++)
        r->sim.edges.edge[i].buffers = edges.edge[i].buffers;
    sched_edges_fini(&edges);
    sched_plan_fini(&with);
    return rc;
}

/* A plan that somebody wrote; no plan after a fault, whose line is printed. */
static int read_plan(struct sched_plan *plan, const struct request *r, const char *path)
{
    struct sched_error err;
    char *text;
    size_t len;
    int rc;

    if (read_file(&text, &len, path))
        return 1;
    rc = sched_csv_parse(plan, text, len, r->shape.micro_batches, &err);
    if (!rc && r->shape.lanes && plan->lanes != r->shape.lanes)
        rc = sched_fail(&err, -EINVAL, -1, -1, -1, "it has rows for %d lanes, not %d",
                        plan->lanes, r->shape.lanes);
    rc = rc ? rc : sched_check(plan, r->shape.cap, &err);
    free(text);
    if (!rc)
        return 0;
    sched_plan_fini(plan);
    return fail(path, &err);
}

static bool is_file(const char *name)
{
    size_t n = strlen(name);

    return n > 4 && !strcmp(name + n - 4, ".csv");
}

/* The plan of a schedule, or one that is read. */
static int get_plan(struct sched_plan *plan, const struct request *r, const char *name)
{
    const struct schedule *schedule = sched_find(name);
    struct sched_error err;

    if (is_file(name))
        return read_plan(plan, r, name);
    if (!schedule) {
        cli_error("no schedule %s: see penstock schedule list", name);
        return 1;
    }
    if (need_shape(r, "show"))
        return 1;
    return sched_make(plan, schedule, &r->shape, &err) ? fail("", &err) : 0;
}

static int show(struct result *r)
{
    const struct request *request = r->request;
    struct sched_error err;
    int rc = request->comm ? sched_comm_insert(&r->plan, &err) : 0;

    if (!rc && request->format != CSV)
        rc = sched_simulate(&r->sim, &r->plan, &request->costs, &err);
    if (!rc && (request->format == TEXT || request->format == JSON))
        rc = count_buffers(r, &err);
    return rc ? fail("", &err) : put_result(r);
}

static int cmd_show(struct request *request, int args, char **arg)
{
    struct result r = {.request = request};
    int rc;

    if (args != 1) {
        cli_error("schedule show needs one NAME: see penstock schedule list");
        return 1;
    }
    if (check_output(request->output) || get_plan(&r.plan, request, arg[0]))
        return 1;
    rc = show(&r);
    sched_sim_fini(&r.sim);
    sched_plan_fini(&r.plan);
    return rc;
}

static int cmd_compare(struct request *request, int args, char **arg)
{
    struct result r = {.request = request};
    struct sched_error err;
    int rc;

    if (args) {
        cli_error("schedule compare takes no argument like %s", arg[0]);
        return 1;
    }
    if (request->format == CSV || request->format == TRACE) {
        cli_error("--format %s: compare gives text, json or svg",
                  format_names[request->format]);
        return 1;
    }
    if (need_shape(request, "compare") || check_output(request->output))
        return 1;
    rc = sched_compare(&r.comparison, &request->shape, &err);
    rc = rc ? fail("", &err) : put_result(&r);
    sched_comparison_fini(&r.comparison);
    return rc;
}

/* Prints what was found good. */
static int print_checked(const struct sched_plan *plan, const char *path)
{
    double peak = 0;

    for (int i = 0; i < plan->lanes; i++)
        peak = sched_peak(plan, i) > peak ? sched_peak(plan, i) : peak;
    printf(
        "%s: %d lanes, %d stages%s, %d micro-batches, peak A %g: complete and runnable\n",
        path, plan->lanes, plan->stages, plan->copies > 1 ? " in two copies" : "",
        plan->micro_batches, peak);
    return close_stdout() != 0;
}

static int cmd_check(const struct request *r, int args, char **arg)
{
    struct sched_plan plan;
    int rc;

    if (args != 1) {
        cli_error("schedule check needs one FILE");
        return 1;
    }
    if (read_plan(&plan, r, arg[0]))
        return 1;
    rc = print_checked(&plan, arg[0]);
    sched_plan_fini(&plan);
    return rc;
}

static int dispatch(struct request *r, const char *command, int args, char **arg)
{
    r->shape.costs = &r->costs;
    if (!strcmp(command, "list"))
        return cmd_list();
    if (!strcmp(command, "show"))
        return cmd_show(r, args, arg);
    if (!strcmp(command, "check"))
        return cmd_check(r, args, arg);
    if (!strcmp(command, "compare"))
        return cmd_compare(r, args, arg);
    cli_error("no command schedule %s: list, show, check or compare", command);
    return 1;
}

int cmd_schedule(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "--help";
    struct request r = {0};
    int rc;

    if (!strcmp(command, "--help") || !strcmp(command, "-h")) {
        fputs(usage_text, argc > 1 ? stdout : stderr);
        return argc > 1 ? close_stdout() != 0 : 1;
    }
    argv[1] = argv[0];
    rc = read_flags(&r, argc - 1, argv + 1);
    if (!rc) {
        set_pair(&r);
        rc = dispatch(&r, command, argc - 1 - optind, argv + 1 + optind);
    }
    sched_costs_fini(&r.costs);
    return rc < 0 ? close_stdout() != 0 : rc;
}
