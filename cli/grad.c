/* penstock grad: loss and gradients of given sequences, to compare with. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/error.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/prompts.h"
#include "cli/report.h"

enum { OPT_IDS = OPT_OWN, OPT_OUT, OPT_SCHEDULE, OPT_MICRO_BATCHES, OPT_RECOMPUTE };

static const struct option flags[] = {
    LANE_FLAGS,
    {"ids", required_argument, NULL, OPT_IDS},
    {"out", required_argument, NULL, OPT_OUT},
    {"schedule", required_argument, NULL, OPT_SCHEDULE},
    {"chunks", required_argument, NULL, 'V'},
    {"micro-batches", required_argument, NULL, OPT_MICRO_BATCHES},
    {"recompute", required_argument, NULL, OPT_RECOMPUTE},
    {0},
};

static const char usage_text[] =
    "usage: penstock grad -m MODEL --ids FILE.json [--out OUT.safetensors] [flags]\n\n"
    "Prints the mean cross-entropy of the next token and the 2-norm of its gradient.\n\n"
    "      --ids FILE         a JSON list of lists of token ids\n"
    "      --out OUT          write loss, grad_norm and grad.NAME of every parameter\n"
    "      --schedule NAME    a schedule (penstock schedule list) or FILE.csv (default "
    "1f1b)\n"
    "      -V, --chunks V     stages per lane (default: the schedule's own)\n"
    "      --micro-batches M  micro-batches (default: one per lane)\n"
    "      --recompute WHAT   none, layer or selective\n";

struct grad {
    struct penstock_options options;
    struct penstock_schedule schedule;
    const char *ids, *out;
    struct prompt_list list;
    struct progress progress;
};

static int own_flag(struct grad *g, int flag, const char *value)
{
    long n = 0;
    int err = 0;
    switch (flag) {
    case OPT_IDS:
        g->ids = value;
        return 0;
    case OPT_OUT:
        g->out = value;
        return 0;
    case OPT_SCHEDULE:
        g->schedule.name = value;
        return 0;
    case OPT_RECOMPUTE:
        g->schedule.recompute = value;
        return 0;
    case 'V':
        err = parse_int(&n, "-V", value, 1, 1024);
        g->schedule.chunks = (int)n;
        return err;
    default:
        err = parse_int(&n, "--micro-batches", value, 1, 1 << 20);
        g->schedule.micro_batches = (int)n;
        return err;
    }
}

/* 0; 1: help was asked for; -EINVAL. */
static int parse(struct grad *g, int argc, char **argv)
{
    int flag, err = 0;
    while (!err && (flag = next_flag(argc, argv, ":m:c:vhV:", flags)) >= 0) {
        if (flag == 'h')
            return 1;
        if (flag == '?')
            return -EINVAL;
        err = lane_flag(&g->options, flag, optarg);
        if (err == 1)
            err = own_flag(g, flag, optarg);
    }
    if (err)
        return err;
    if (optind < argc)
        return cli_error("unexpected argument %s", argv[optind]);
    if (!g->ids)
        return cli_error("no sequences: give --ids FILE.json");
    return has_model(&g->options) ? 0 : -EINVAL;
}

static int write_out(const char *path, const struct penstock_grad_report *r)
{
    struct penstock_tensor *t = calloc(r->n + 2, sizeof(*t));
    char(*names)[160] = calloc(r->n, sizeof(*names));
    float loss = (float)r->loss, norm = (float)r->grad_norm;
    int err = t && names ? 0 : cli_no_memory("--out");

    for (size_t i = 0; i < r->n && !err; i++) {
        const struct penstock_gradient *g = &r->gradients[i];
        snprintf(names[i], sizeof(names[i]), "grad.%s", g->name);
        t[i] = (struct penstock_tensor){
            names[i], g->cols == 1 ? 1 : 2, {g->rows, g->cols}, g->values};
    }
    if (!err) {
        t[r->n] = (struct penstock_tensor){"loss", 1, {1}, &loss};
        t[r->n + 1] = (struct penstock_tensor){"grad_norm", 1, {1}, &norm};
        err = penstock_save(path, t, r->n + 2);
    }
    free(names);
    free(t);
    return err;
}

static int grad(struct grad *g)
{
    struct penstock_grad_report r;
    int err = check_output(g->out);
    if (!err)
        err = prompts_add_ids(&g->list, g->ids);
    if (!err)
        err = penstock_grad(&r, &g->options, &g->schedule, g->list.items, g->list.n);
    progress_clear(&g->progress);
    if (err == -ETIMEDOUT)
        _exit(1);
    if (err)
        return err;
    if (g->out)
        err = write_out(g->out, &r);
    if (!err) {
        printf("loss %.9g\ngrad_norm %.9g\n", r.loss, r.grad_norm);
        err = close_stdout();
    }
    if (!err)
        report_stages(&r.run);
    penstock_grad_report_free(&r);
    return err;
}

int cmd_grad(int argc, char **argv)
{
    struct grad g = {0};
    progress_init(&g.progress);
    g.options.progress = progress_show;
    g.options.user = &g.progress;
    int err = parse(&g, argc, argv);
    if (err == 1) {
        printf("%s\n%s", usage_text, lane_flags_help);
        return close_stdout() != 0;
    }
    if (!err)
        err = grad(&g);
    prompts_free(&g.list);
    return err != 0;
}
