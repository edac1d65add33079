/* penstock run: text in, text out, through a model cut into stages. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/prompts.h"
#include "cli/report.h"

enum {
    OPT_PROMPTS = OPT_OWN,
    OPT_TEMP,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_REPEAT,
    OPT_SEED,
    OPT_CHAT,
    OPT_IGNORE_EOS,
    OPT_MICRO_BATCHES,
    OPT_JSON
};

static const struct option flags[] = {
    LANE_FLAGS,
    {"prompt", required_argument, NULL, 'p'},
    {"file", required_argument, NULL, 'f'},
    {"prompts", required_argument, NULL, OPT_PROMPTS},
    {"n-predict", required_argument, NULL, 'n'},
    {"predict", required_argument, NULL, 'n'},
    {"temp", required_argument, NULL, OPT_TEMP},
    {"top-k", required_argument, NULL, OPT_TOP_K},
    {"top-p", required_argument, NULL, OPT_TOP_P},
    {"min-p", required_argument, NULL, OPT_MIN_P},
    {"repeat-penalty", required_argument, NULL, OPT_REPEAT},
    {"seed", required_argument, NULL, OPT_SEED},
    {"chat", no_argument, NULL, OPT_CHAT},
    {"ignore-eos", no_argument, NULL, OPT_IGNORE_EOS},
    {"micro-batches", required_argument, NULL, OPT_MICRO_BATCHES},
    {"json", required_argument, NULL, OPT_JSON},
    {0},
};

static const char usage_text[] =
    "usage: penstock run -m MODEL (-p TEXT | -f FILE | --prompts FILE.jsonl) [flags]\n\n"
    "  -p, --prompt TEXT     the prompt\n"
    "  -f, --file FILE       the prompt is this file's text (- for standard input)\n"
    "      --prompts FILE    one prompt a line: {\"prompt\": TEXT} or {\"ids\": [...]}\n"
    "      --chat            put each prompt into the model's chat form\n"
    "  -n, --n-predict N     new tokens per prompt (default 128; -1: to the context's "
    "end)\n"
    "      --ignore-eos      go on after the end-of-text token\n"
    "      --temp T          temperature; 0 takes the likeliest token (default 0)\n"
    "      --top-k K  --top-p P  --min-p P   what may be drawn (defaults 40, 0.95, "
    "0.05)\n"
    "      --repeat-penalty R    on the last 64 tokens (default 1: none)\n"
    "      --seed N          of the draws (default 0)\n"
    "      --micro-batches M groups of sequences that decode in turn (default: the "
    "stages)\n"
    "      --json FILE       the whole report\n";

struct run {
    struct penstock_options options;
    struct penstock_generate work;
    const char *prompt, *file, *prompts, *json;
    bool chat;
    struct penstock_text *text;
    struct prompt_list list;
    struct progress progress;
    struct out *outs; /* (n) what is printed of every sequence */
    int current;      /* sequence that streams to stdout now */
    bool begun;       /* its first text is printed */
    int printing;     /* -errno: what went wrong while text was printed */
};

/* What a sequence has produced that is not printed yet. */
struct out {
    struct penstock_stream *stream; /* NULL: ids */
    char *held;
    size_t n, cap;
    size_t tokens;
    bool ended;
};

static int real_flag(float *out, const char *flag, const char *value, double low,
                     double high)
{
    double v = 0;
    int err = parse_real(&v, flag, value, low, high);
    *out = (float)v;
    return err;
}

static int number_flag(struct run *r, int flag, const char *value)
{
    struct penstock_sampling *s = &r->work.sampling;
    long n = 0;
    int err;
    switch (flag) {
    case 'n':
        err = parse_int(&n, "-n", value, -1, 1 << 24);
        r->work.n_predict = (int)n;
        return err;
    case OPT_TEMP:
        return real_flag(&s->temperature, "--temp", value, 0, 1000);
    case OPT_TOP_K:
        err = parse_int(&n, "--top-k", value, 0, INT32_MAX);
        s->top_k = (int)n;
        return err;
    case OPT_TOP_P:
        return real_flag(&s->top_p, "--top-p", value, 0, 1);
    case OPT_MIN_P:
        return real_flag(&s->min_p, "--min-p", value, 0, 1);
    case OPT_REPEAT:
        return real_flag(&s->repeat_penalty, "--repeat-penalty", value, 0.01, 100);
    case OPT_SEED:
        err = parse_int(&n, "--seed", value, 0, INT64_MAX);
        s->seed = (uint64_t)n;
        return err;
    default:
        err = parse_int(&n, "--micro-batches", value, 1, 256);
        r->options.micro_batches = (int)n;
        return err;
    }
}

static int own_flag(struct run *r, int flag, const char *value)
{
    switch (flag) {
    case 'p':
        r->prompt = value;
        return 0;
    case 'f':
        r->file = value;
        return 0;
    case OPT_PROMPTS:
        r->prompts = value;
        return 0;
    case OPT_CHAT:
        r->chat = true;
        return 0;
    case OPT_IGNORE_EOS:
        r->work.ignore_eos = true;
        return 0;
    case OPT_JSON:
        r->json = value;
        return 0;
    default:
        return number_flag(r, flag, value);
    }
}

/* 0; 1: help was asked for; -EINVAL. */
static int parse(struct run *r, int argc, char **argv)
{
    int flag, err = 0;
    while (!err && (flag = next_flag(argc, argv, ":m:c:vhp:f:n:", flags)) >= 0) {
        if (flag == 'h')
            return 1;
        if (flag == '?')
            return -EINVAL;
        err = lane_flag(&r->options, flag, optarg);
        if (err == 1)
            err = own_flag(r, flag, optarg);
    }
    if (err)
        return err;
    int sources = !!r->prompt + !!r->file + !!r->prompts;
    if (no_arguments(argc, argv) || !has_model(&r->options))
        return -EINVAL;
    return sources == 1 ? 0 : cli_error("give one of -p, -f and --prompts");
}

static int collect_prompts(struct run *r)
{
    char *text;
    size_t len;
    if (r->prompts)
        return prompts_add_jsonl(&r->list, r->text, r->prompts, r->chat);
    if (r->prompt)
        return prompts_add_text(&r->list, r->text, r->prompt, strlen(r->prompt), r->chat);
    int err = read_file(&text, &len, r->file);
    if (err)
        return err;
    err = prompts_add_text(&r->list, r->text, text, len, r->chat);
    free(text);
    return err;
}

static int open_outs(struct run *r)
{
    int err = 0;
    r->outs = calloc(r->list.n, sizeof(*r->outs));
    if (!r->outs)
        return cli_no_memory("the output");
    for (int i = 0; i < r->list.n && !err && penstock_text_known(r->text); i++)
        err = penstock_stream_open(&r->outs[i].stream, r->text);
    return err;
}

static void close_outs(struct run *r)
{
    for (int i = 0; r->outs && i < r->list.n; i++) {
        penstock_stream_close(r->outs[i].stream);
        free(r->outs[i].held);
    }
    free(r->outs);
}

static int hold(struct out *o, const char *text, size_t len)
{
    if (!len)
        return 0;
    if (o->n + len > o->cap) {
        size_t cap = 2 * (o->n + len) + 64;
        char *more = realloc(o->held, cap);
        if (!more)
            return cli_no_memory("the output");
        o->held = more;
        o->cap = cap;
    }
    memcpy(o->held + o->n, text, len);
    o->n += len;
    return 0;
}

/* Prints what the current sequence holds; moves on to the next one when it has ended. */
static void print_held(struct run *r)
{
    progress_clear(&r->progress);
    for (; r->current < r->list.n; r->current++, r->begun = false) {
        struct out *o = &r->outs[r->current];
        if (!r->begun && r->list.n > 1)
            printf(r->current ? "\n--- %d ---\n" : "--- %d ---\n", r->current);
        r->begun = true;
        fwrite(o->held, 1, o->n, stdout);
        o->n = 0;
        if (!o->ended)
            break;
        putchar('\n');
    }
    if (!r->printing)
        r->printing = close_stdout();
}

static int on_token(void *user, int sequence, int32_t token)
{
    struct run *r = user;
    struct out *o = &r->outs[sequence];
    char number[16];
    const char *text = number;
    size_t len;
    int err = 0;

    if (o->stream)
        err = penstock_stream_next(o->stream, token, &text, &len);
    else
        len = snprintf(number, sizeof(number), o->tokens ? " %d" : "%d", token);
    o->tokens++;
    if (!err)
        err = hold(o, text, len);
    if (err)
        r->printing = err;
    else if (sequence == r->current)
        print_held(r);
    return r->printing;
}

static void on_end(void *user, int sequence)
{
    struct run *r = user;
    struct out *o = &r->outs[sequence];
    const char *text;
    size_t len;
    if (r->printing)
        return;
    if (o->stream)
        r->printing = penstock_stream_flush(o->stream, &text, &len);
    if (o->stream && !r->printing)
        r->printing = hold(o, text, len);
    o->ended = true;
    if (sequence == r->current)
        print_held(r);
}

static int generate(struct run *r)
{
    struct penstock_report report;
    int err = check_output(r->json);
    if (!err)
        err = penstock_text_open(&r->text, r->options.model);
    if (!err)
        err = collect_prompts(r);
    if (!err)
        err = open_outs(r);
    if (err)
        return err;
    r->work.prompts = r->list.items;
    r->work.n_prompts = r->list.n;
    r->work.on_token = on_token;
    r->work.on_end = on_end;
    r->work.user = r;
    err = penstock_generate(&report, &r->options, &r->work);
    progress_clear(&r->progress);
    if (err == -ETIMEDOUT)
        _exit(1);
    if (err)
        return err;
    if (r->printing) {
        penstock_report_free(&report);
        return r->printing;
    }
    if (r->json)
        err = report_write_json(r->json, &report, r->text);
    if (!err) {
        report_stages(&report);
        report_speed(&report);
    }
    penstock_report_free(&report);
    return err;
}

int cmd_run(int argc, char **argv)
{
    struct run r = {
        .work = {.n_predict = 128,
                 .sampling =
                     {.top_k = 40, .top_p = 0.95F, .min_p = 0.05F, .repeat_penalty = 1}},
    };
    progress_init(&r.progress);
    r.options.progress = progress_show;
    r.options.user = &r.progress;
    int err = parse(&r, argc, argv);
    if (err == 1) {
        printf("%s\n%s%s", usage_text, infer_flags_help, lane_flags_help);
        return close_stdout() != 0;
    }
    if (!err)
        err = generate(&r);
    close_outs(&r);
    prompts_free(&r.list);
    penstock_text_close(r.text);
    return err != 0;
}
