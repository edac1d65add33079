/* Prints reports. */
#include "cli/report.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/error.h"
#include "cli/files.h"

static double mib(size_t bytes)
{
    return bytes / 1048576.0;
}

void report_stages(const struct penstock_report *r)
{
    fprintf(stderr, "\n%5s  %-12s %-9s %14s %14s %6s\n", "stage", "lane", "layers",
            "predicted MiB", "measured MiB", "busy");
    for (int i = 0; i < r->n_stages; i++) {
        const struct penstock_stage_report *s = &r->stages[i];
        char layers[32];
        snprintf(layers, sizeof(layers), "%d-%d", s->first, s->last);
        fprintf(stderr, "%5d  %-12s %-9s %14.1f %14.1f %5.1f%%\n", s->index, s->lane,
                layers, mib(s->bytes_predicted), mib(s->bytes_measured), 100 * s->busy);
    }
}

static void report_phase(const char *name, const struct penstock_phase_report *p)
{
    fprintf(stderr, "%-8s %8zu tokens in %8.3f s: %10.1f tokens/s\n", name, p->tokens,
            p->seconds, p->tokens_per_s);
}

void report_speed(const struct penstock_report *r)
{
    report_phase("prefill", &r->prefill);
    report_phase("decode", &r->decode);
    fprintf(stderr,
            "first token after %.3f s; link %s; %d micro-batch%s; bubble %.1f %%\n",
            r->ttft_s, r->link, r->micro_batches, r->micro_batches == 1 ? "" : "es",
            100 * r->bubble);
}

static json_t *json_phase(const struct penstock_phase_report *p)
{
    return json_pack("{s:I, s:f, s:f}", "tokens", (json_int_t)p->tokens, "seconds",
                     p->seconds, "tokens_per_s", p->tokens_per_s);
}

static json_t *json_stages(const struct penstock_report *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_stages; i++) {
        const struct penstock_stage_report *s = &r->stages[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:s, s:[i, i], s:I, s:I, s:f}", "index",
                                        s->index, "lane", s->lane, "layers", s->first,
                                        s->last, "bytes_predicted",
                                        (json_int_t)s->bytes_predicted, "bytes_measured",
                                        (json_int_t)s->bytes_measured, "busy", s->busy));
    }
    return list;
}

/* The text of a sequence; bytes that are not UTF-8 (a character cut by the end) are replaced. */
static json_t *json_text(struct penstock_text *t, const struct penstock_sequence *q)
{
    json_t *json = NULL;
    char *text = NULL;
    size_t len = 0;

    if (!penstock_text_known(t) ||
        penstock_decode(t, &text, &len, q->tokens, q->n, false))
        return json_null();
    json = json_stringn(text, len);
    if (!json) {
        for (size_t i = 0; i < len; i++)
            text[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
        json = json_stringn(text, len);
    }
    free(text);
    return json ? json : json_null();
}

static json_t *json_sequences(const struct penstock_report *r, struct penstock_text *t)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_sequences; i++) {
        const struct penstock_sequence *q = &r->sequences[i];
        json_t *tokens = json_array();
        for (size_t j = 0; j < q->n; j++)
            json_array_append_new(tokens, json_integer(q->tokens[j]));
        json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "prompt_tokens",
                                              (json_int_t)q->prompt_tokens, "tokens",
                                              tokens, "text", json_text(t, q)));
    }
    return list;
}

static int dump(FILE *f, void *arg)
{
    return json_dumpf(arg, f, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) ||
           fputc('\n', f) == EOF;
}

int report_write_json(const char *path, const struct penstock_report *r,
                      struct penstock_text *t)
{
    json_t *o =
        json_pack("{s:o, s:i, s:s, s:o, s:o, s:f, s:f, s:o}", "stages", json_stages(r),
                  "micro_batches", r->micro_batches, "link", r->link, "prefill",
                  json_phase(&r->prefill), "decode", json_phase(&r->decode), "ttft_s",
                  r->ttft_s, "bubble", r->bubble, "sequences", json_sequences(r, t));
    if (!o)
        return cli_no_memory("the report");
    int err = write_file(path, dump, o);
    json_decref(o);
    return err;
}
