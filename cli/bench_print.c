/* A result as one JSON object, which is also a line of CSV; or as a row of a Markdown table. */
#include "cli/bench_print.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/error.h"

int bench_format_parse(enum bench_format *format, const char *flag, const char *word)
{
    static const char *const words[] = {
        [BENCH_NONE] = "none", [BENCH_MD] = "md",       [BENCH_CSV] = "csv",
        [BENCH_JSON] = "json", [BENCH_JSONL] = "jsonl",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(word, words[i])) {
            *format = i;
            return 0;
        }
    return cli_error("%s %s: expected none, md, csv, json or jsonl", flag, word);
}

/* ---- Figures -------------------------------------------------------------------------------------- */

/* Mean and standard deviation (of a sample: n - 1) of tokens / second, or of nanoseconds if tokens is 0. */
static double figure(const struct penstock_bench_result *r, double tokens, int i)
{
    return tokens > 0 ? tokens / r->seconds[i] : round(r->seconds[i] * 1e9);
}

static void summarise(const struct penstock_bench_result *r, double tokens, double *mean,
                      double *deviation)
{
    double squares = 0;

    *mean = *deviation = 0;
    for (int i = 0; i < r->n; i++)
        *mean += figure(r, tokens, i) / r->n;
    for (int i = 0; i < r->n; i++)
        squares += pow(figure(r, tokens, i) - *mean, 2);
    if (r->n > 1)
        *deviation = sqrt(squares / (r->n - 1));
}

/* Tokens that a repetition measures. */
static double tokens_of(const struct penstock_bench_case *c)
{
    return ((double)c->prompt + c->generate) * c->sequences;
}

/* "llama 8.03B BF16", "llama 135M BF16" */
static void model_type(char *text, size_t size, const struct penstock_model_info *m)
{
    double n = m->parameters;
    if (n < 1e6)
        snprintf(text, size, "%s %.0fK %s", m->arch, n / 1e3, m->type);
    else if (n < 1e9)
        snprintf(text, size, "%s %.0fM %s", m->arch, n / 1e6, m->type);
    else
        snprintf(text, size, "%s %.2fB %s", m->arch, n / 1e9, m->type);
}

static const char *model_name(const struct penstock_options *o)
{
    return o->model ? o->model : o->shape;
}

static const char *or_else(const char *word, const char *other)
{
    return word && *word ? word : other;
}

/* ---- JSON and CSV ---------------------------------------------------------------------------------- */

/* Bytes that are not UTF-8 are replaced. */
static json_t *json_text(const char *text)
{
    json_t *json = json_string(text);
    char *copy = json ? NULL : strdup(text);

    for (char *c = copy; c && *c; c++)
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    json = copy ? json_string(copy) : json;
    free(copy);
    return json;
}

/* Who ran: the fields that are the same for all results of a configuration. */
static json_t *json_configuration(const struct bench_row *row)
{
    const struct penstock_options *o = row->options;
    const struct penstock_bench_result *r = row->result;
    char type[64];

    model_type(type, sizeof(type), row->model);
    return json_pack(
        "{s:s, s:o, s:o, s:s, s:o, s:s, s:I, s:I, s:o, s:i, s:o, s:o, s:s, s:s, s:s}",
        "build_version", penstock_version(), "cpu_info", json_text(r->cpu), "gpu_info",
        json_text(r->gpu), "backend", r->backend, "model_filename",
        json_text(model_name(o)), "model_type", type, "model_size",
        (json_int_t)row->model->bytes, "model_n_params",
        (json_int_t)row->model->parameters, "devices",
        json_text(or_else(o->devices, "auto")), "n_stages", r->stages, "split",
        json_text(or_else(o->split, "")), "layers", json_text(or_else(o->layers, "")),
        "dtype", or_else(o->dtype, "auto"), "order", or_else(o->order, "strict"),
        "schedule", r->schedule);
}

static json_t *json_test(const struct bench_row *row)
{
    const struct penstock_bench_case *c = row->test;
    const struct penstock_bench_result *r = row->result;
    time_t now = time(NULL);
    struct tm utc;
    char when[32];

    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s}", "link",
                     r->link ? r->link : or_else(row->options->link, "auto"),
                     "n_sequences", c->sequences, "n_micro_batches",
                     r->link ? r->micro_batches : c->micro_batches, "n_ubatch", c->ubatch,
                     "n_prompt", c->prompt, "n_gen", c->generate, "n_depth", c->depth,
                     "test_time", when);
}

static json_t *json_figures(const struct bench_row *row)
{
    const struct penstock_bench_result *r = row->result;
    double ns, ns_deviation, ts, ts_deviation, tokens = tokens_of(row->test);
    json_t *all_ns = json_array(), *all_ts = json_array();

    if (r->skipped) {
        json_decref(all_ns);
        json_decref(all_ts);
        return json_pack("{s:n, s:n, s:n, s:n, s:[], s:[], s:n, s:s}", "avg_ns",
                         "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts",
                         "bubble", "skipped", r->skipped);
    }
    summarise(r, 0, &ns, &ns_deviation);
    summarise(r, tokens, &ts, &ts_deviation);
    for (int i = 0; i < r->n; i++) {
        json_array_append_new(all_ns, json_integer((json_int_t)figure(r, 0, i)));
        json_array_append_new(all_ts, json_real(figure(r, tokens, i)));
    }
    return json_pack("{s:I, s:I, s:f, s:f, s:o, s:o, s:f, s:n}", "avg_ns",
                     (json_int_t)round(ns), "stddev_ns", (json_int_t)round(ns_deviation),
                     "avg_ts", ts, "stddev_ts", ts_deviation, "samples_ns", all_ns,
                     "samples_ts", all_ts, "bubble", r->bubble, "skipped");
}

static json_t *json_row(const struct bench_row *row)
{
    json_t *all = json_configuration(row), *parts[] = {json_test(row), json_figures(row)};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (all && (!parts[i] || json_object_update(all, parts[i]))) {
            json_decref(all);
            all = NULL;
        }
        json_decref(parts[i]);
    }
    return all;
}

static void print_json(struct bench_printer *p, const json_t *o)
{
    if (p->format == BENCH_JSON)
        fputs(p->begun ? ",\n" : "[\n", p->file);
    json_dumpf(o, p->file, JSON_REAL_PRECISION(9));
    if (p->format == BENCH_JSONL)
        fputc('\n', p->file);
}

static void print_quoted(FILE *f, const char *text)
{
    for (; *text; text++)
        fprintf(f, *text == '"' ? "\"%c" : "%c", *text);
}

/* A cell of CSV: lists are separated by spaces. */
static void print_cell(FILE *f, const json_t *value)
{
    if (json_is_string(value))
        print_quoted(f, json_string_value(value));
    else if (json_is_integer(value))
        fprintf(f, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        fprintf(f, "%.9g", json_real_value(value));
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i)
            fputc(' ', f);
        print_cell(f, json_array_get(value, i));
    }
}

static void print_csv(struct bench_printer *p, json_t *o)
{
    const char *name, *between = "";
    json_t *value;

    if (!p->begun) {
        json_object_foreach(o, name, value)
        {
            fprintf(p->file, "%s%s", between, name);
            between = ",";
        }
        fputc('\n', p->file);
    }
    between = "\"";
    json_object_foreach(o, name, value)
    {
        fputs(between, p->file);
        print_cell(p->file, value);
        between = "\",\"";
    }
    fputs("\"\n", p->file);
}

/* ---- The table ------------------------------------------------------------------------------------- */

static const struct column {
    const char *name;
    int width;
    bool left;
} columns[COLUMN_COUNT] = {
    [COLUMN_MODEL] = {"model", 24, true},
    [COLUMN_SIZE] = {"size", 10, false},
    [COLUMN_PARAMS] = {"params", 10, false},
    [COLUMN_BACKEND] = {"backend", 8, true},
    [COLUMN_DEVICES] = {"devices", 13, true},
    [COLUMN_STAGES] = {"stages", 6, false},
    [COLUMN_SPLIT] = {"split", 9, true},
    [COLUMN_LAYERS] = {"layers", 9, true},
    [COLUMN_DTYPE] = {"dtype", 5, true},
    [COLUMN_ORDER] = {"order", 6, true},
    [COLUMN_UBATCH] = {"ubatch", 6, false},
    [COLUMN_BATCH] = {"batch", 5, false},
    [COLUMN_MICRO_BATCHES] = {"micro-batches", 13, false},
    [COLUMN_SCHEDULE] = {"schedule", 8, true},
    [COLUMN_LINK] = {"link", 5, true},
    [COLUMN_TEST] = {"test", 16, false},
    [COLUMN_SPEED] = {"t/s", 20, false},
    [COLUMN_BUBBLE] = {"bubble", 7, false},
};

/* "pp512", "tg128", "pp512+tg128", " @ d1024" */
static void test_name(char *text, size_t size, const struct penstock_bench_case *c)
{
    char prompt[24] = "", generate[24] = "", depth[24] = "";

    if (c->prompt)
        snprintf(prompt, sizeof(prompt), "pp%d", c->prompt);
    if (c->generate)
        snprintf(generate, sizeof(generate), "%stg%d", c->prompt ? "+" : "", c->generate);
    if (c->depth)
        snprintf(depth, sizeof(depth), " @ d%d", c->depth);
    snprintf(text, size, "%s%s%s", prompt, generate, depth);
}

static void speed(char *text, size_t size, const struct bench_row *row)
{
    double mean, deviation;

    summarise(row->result, tokens_of(row->test), &mean, &deviation);
    if (row->result->skipped)
        snprintf(text, size, "skipped: %s", row->result->skipped);
    else
        snprintf(text, size, "%.2f ± %.2f", mean, deviation);
}

static void put_number(char *text, size_t size, int n)
{
    snprintf(text, size, "%d", n);
}

/* The cells that figures stand in. */
static void put_figure(char *text, size_t size, const struct bench_row *row,
                       enum bench_column column)
{
    const struct penstock_model_info *m = row->model;
    double gib = m->bytes / 0x1p30, billions = m->parameters / 1e9;

    if (column == COLUMN_SIZE)
        snprintf(text, size, gib < 1 ? "%.2f MiB" : "%.2f GiB",
                 gib < 1 ? gib * 1024 : gib);
    else if (column == COLUMN_PARAMS)
        snprintf(text, size, billions < 1 ? "%.2f M" : "%.2f B",
                 billions < 1 ? billions * 1e3 : billions);
    else if (column == COLUMN_STAGES)
        put_number(text, size, row->result->stages);
    else if (column == COLUMN_UBATCH)
        put_number(text, size, row->test->ubatch);
    else if (column == COLUMN_BATCH)
        put_number(text, size, row->test->sequences);
    else if (row->result->skipped)
        snprintf(text, size, "-");
    else if (column == COLUMN_MICRO_BATCHES)
        put_number(text, size, row->result->micro_batches);
    else
        snprintf(text, size, "%.1f %%", 100 * row->result->bubble);
}

static void put_cell(char *text, size_t size, const struct bench_row *row,
                     enum bench_column column)
{
    const struct penstock_options *o = row->options;
    const char *const words[COLUMN_COUNT] = {
        [COLUMN_BACKEND] = row->result->backend,
        [COLUMN_DEVICES] = or_else(o->devices, "auto"),
        [COLUMN_SPLIT] = or_else(o->split, "-"),
        [COLUMN_LAYERS] = or_else(o->layers, "-"),
        [COLUMN_DTYPE] = or_else(o->dtype, "auto"),
        [COLUMN_ORDER] = or_else(o->order, "strict"),
        [COLUMN_SCHEDULE] = row->result->schedule,
        [COLUMN_LINK] = row->result->link ? row->result->link : "-",
    };

    if (words[column])
        snprintf(text, size, "%s", words[column]);
    else if (column == COLUMN_MODEL)
        model_type(text, size, row->model);
    else if (column == COLUMN_TEST)
        test_name(text, size, row->test);
    else if (column == COLUMN_SPEED)
        speed(text, size, row);
    else
        put_figure(text, size, row, column);
}

/* A sign of two bytes takes one place. */
static void print_padded(FILE *f, const struct column *c, const char *text)
{
    int width = c->width + (strstr(text, "±") ? 1 : 0);
    fprintf(f, c->left ? " %-*s |" : " %*s |", width, text);
}

static void print_head(struct bench_printer *p)
{
    static const char dashes[] = "------------------------";

    fputc('|', p->file);
    for (int i = 0; i < COLUMN_COUNT; i++)
        if (!p->hidden[i])
            print_padded(p->file, &columns[i], columns[i].name);
    fputs("\n|", p->file);
    for (int i = 0; i < COLUMN_COUNT; i++)
        if (!p->hidden[i])
            fprintf(p->file, " %.*s%s |", columns[i].width - !columns[i].left, dashes,
                    columns[i].left ? "" : ":");
    fputc('\n', p->file);
}

static void print_md(struct bench_printer *p, const struct bench_row *row)
{
    char text[256];

    if (!p->begun)
        print_head(p);
    fputc('|', p->file);
    for (int i = 0; i < COLUMN_COUNT; i++)
        if (!p->hidden[i]) {
            put_cell(text, sizeof(text), row, i);
            print_padded(p->file, &columns[i], text);
        }
    fputc('\n', p->file);
}

/* ---- All formats ------------------------------------------------------------------------------------ */

int bench_print(struct bench_printer *p, const struct bench_row *row)
{
    json_t *o = NULL;

    if (p->format == BENCH_NONE)
        return 0;
    if (p->format == BENCH_MD)
        print_md(p, row);
    else if (!(o = json_row(row)))
        return cli_no_memory("a result");
    else if (p->format == BENCH_CSV)
        print_csv(p, o);
    else
        print_json(p, o);
    json_decref(o);
    p->begun = true;
    fflush(p->file);
    return 0;
}

void bench_print_end(struct bench_printer *p, bool interrupted)
{
    if (p->format == BENCH_JSON && (p->begun || interrupted))
        fputs(p->begun ? "\n]\n" : "[]\n", p->file);
    if (p->format == BENCH_MD && p->begun)
        fprintf(p->file, "\nbuild: %s\n", penstock_version());
    fflush(p->file);
}
