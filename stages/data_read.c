/* Readers of data files: JSON lines, a JSON list, plain text. Only one document at a time
 * is held in any form but ids. */
#include "stages/data_read.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/tokenizer.h"
#include "stages/utf8.h"

/* Bytes read between two calls of progress. */
#define PROGRESS_BYTES ((size_t)1 << 20)

/* The most that jansson counts in a value, and more than the tokenizer takes as a text. */
#define MAX_VALUE ((size_t)INT32_MAX)
#define MAX_TEXT  ((size_t)1 << 30)

struct reader {
    const struct data_config *config;
    struct documents *out;
    const char *text; /* (len) the file */
    size_t len, at, shown;
    int32_t *ids; /* (ids_cap) a document that JSON gave as ids */
    size_t ids_cap;
    char where[320];
};

static void show(const struct reader *r, double done)
{
    if (r->config->progress)
        r->config->progress(r->config->user, "reading data", done);
}

static void show_at(struct reader *r)
{
    if (r->at - r->shown < PROGRESS_BYTES)
        return;
    r->shown = r->at;
    show(r, (double)r->at / (double)r->len);
}

/* What the next document's messages begin with. */
static void set_where(struct reader *r, const char *unit, size_t number)
{
    snprintf(r->where, sizeof(r->where), "%.250s, %s %zu", r->config->path, unit, number);
}

static int check_ids(const struct reader *r, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= r->config->vocabulary) {
            log_error("%s: token %zu: id %d is not in the vocabulary of %zu", r->where, i,
                      ids[i], r->config->vocabulary);
            return -EINVAL;
        }
    return 0;
}

static int add_ids(struct reader *r, const int32_t *ids, size_t n)
{
    const struct data_config *c = r->config;
    struct documents *d = r->out;
    size_t most = (size_t)c->positions + 1;
    int err = check_ids(r, ids, n);

    if (err || !n || (!c->pack && n < 2))
        return err;
    if (!c->pack && n > most) {
        n = most;
        d->cut++;
    }
    err = text_room((void **)&d->ids, &d->ids_cap, d->n_ids, n + 1, sizeof(*d->ids));
    if (!err)
        err = text_room((void **)&d->ends, &d->ends_cap, d->n, 1, sizeof(*d->ends));
    if (err)
        return err;
    memcpy(d->ids + d->n_ids, ids, n * sizeof(*ids));
    d->n_ids += n;
    if (c->pack && c->eos >= 0 && ids[n - 1] != c->eos)
        d->ids[d->n_ids++] = c->eos;
    d->ends[d->n++] = d->n_ids;
    return 0;
}

static int add_text(struct reader *r, const char *text, size_t len)
{
    const struct data_config *c = r->config;
    int32_t *ids = NULL;
    size_t n = 0;

    if (!c->tokenizer) {
        log_error("%s: text needs a tokenizer, and the model has none: give token ids",
                  r->where);
        return -EINVAL;
    }
    if (!len)
        return 0;
    if (len > MAX_TEXT) {
        log_error("%s: %zu bytes are too many for one document (1 GiB): use JSON lines",
                  r->where, len);
        return -E2BIG;
    }
    int err = tokenizer_encode(c->tokenizer, &ids, &n, text, len, false, c->bos);
    if (err)
        return err;
    err = add_ids(r, ids, n);
    free(ids);
    return err;
}

static int add_list(struct reader *r, const json_t *list)
{
    size_t n = json_array_size(list);
    int err = text_room((void **)&r->ids, &r->ids_cap, 0, n, sizeof(*r->ids));

    for (size_t i = 0; i < n && !err; i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t id = json_integer_value(value);
        if (json_is_integer(value) && id >= 0 && id <= INT32_MAX) {
            r->ids[i] = (int32_t)id;
        } else {
            log_error("%s: item %zu is not a token id", r->where, i);
            err = -EINVAL;
        }
    }
    return err ? err : add_ids(r, r->ids, n);
}

static int not_json(const struct reader *r, const json_error_t *error)
{
    char why[sizeof(error->text)];
    file_text(why, sizeof(why), error->text, strnlen(error->text, sizeof(error->text)));
    log_error("%s: not valid JSON: %s", r->where, why);
    return -EINVAL;
}

/* ---- JSON lines -------------------------------------------------------------------- */

static int add_object(struct reader *r, const json_t *o)
{
    const json_t *text = json_object_get(o, "text"), *ids = json_object_get(o, "ids");
    const json_t *input_ids = json_object_get(o, "input_ids");

    if (!!text + !!ids + !!input_ids == 1) {
        const json_t *list = ids ? ids : input_ids;
        if (json_is_string(text))
            return add_text(r, json_string_value(text), json_string_length(text));
        if (json_is_array(list))
            return add_list(r, list);
    }
    log_error("%s: expected one of {\"text\": TEXT}, {\"ids\": [...]} and "
              "{\"input_ids\": [...]}",
              r->where);
    return -EINVAL;
}

static int add_line(struct reader *r, const char *line, size_t len)
{
    json_error_t why;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!o)
        return not_json(r, &why);
    int err = add_object(r, o);
    json_decref(o);
    return err;
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!strchr(" \t\r", line[i]) || !line[i])
            return false;
    return true;
}

/* The next line, its end left out. False at the end of the file. */
static bool next_line(struct reader *r, const char **line, size_t *len)
{
    if (r->at >= r->len)
        return false;
    *line = r->text + r->at;
    const char *end = memchr(*line, '\n', r->len - r->at);
    *len = end ? (size_t)(end - *line) : r->len - r->at;
    r->at += *len + !!end;
    return true;
}

static int read_lines(struct reader *r)
{
    const char *line;
    size_t len;
    int err = 0;

    for (size_t number = 1; !err && next_line(r, &line, &len); number++) {
        set_where(r, "line", number);
        if (!is_blank(line, len))
            err = add_line(r, line, len);
        show_at(r);
    }
    return err;
}

/* ---- A JSON list ------------------------------------------------------------------- */

/* The next byte that is no white space of JSON, which is passed over; 0 at the end. */
static char peek(struct reader *r)
{
    while (r->at < r->len && r->text[r->at] && strchr(" \t\r\n", r->text[r->at]))
        r->at++;
    return r->at < r->len ? r->text[r->at] : 0;
}

/* A list of ids at r->at, which moves behind it. */
static int read_list(struct reader *r)
{
    size_t rest = r->len - r->at;
    json_error_t why;
    json_t *list = json_loadb(r->text + r->at, rest < MAX_VALUE ? rest : MAX_VALUE,
                              JSON_DISABLE_EOF_CHECK, &why);
    if (!list)
        return not_json(r, &why);
    int err = add_list(r, list);
    json_decref(list);
    r->at += err ? 0 : (size_t)why.position;
    show_at(r);
    return err;
}

static int expected(const struct reader *r, const char *what)
{
    log_error("%s: expected %s at byte %zu", r->config->path, what, r->at);
    return -EINVAL;
}

/* The lists in a list, one by one: as a whole it would take many times its ids. */
static int read_lists(struct reader *r)
{
    int err = 0;

    r->at++;
    for (size_t i = 0; !err && peek(r) != ']'; i++) {
        if (i && peek(r) != ',')
            return expected(r, "a comma or ]");
        r->at += !!i;
        set_where(r, "list", i);
        if (peek(r) != '[')
            return expected(r, "a list of token ids");
        err = read_list(r);
    }
    r->at++;
    return err;
}

static int read_json(struct reader *r)
{
    int err;

    if (peek(r) != '[')
        return expected(r, "a list of lists of token ids");
    size_t start = r->at++;
    char inner = peek(r);
    r->at = start;
    err = inner == '[' || inner == ']' ? read_lists(r) : read_list(r);
    return !err && (peek(r) || r->at < r->len) ? expected(r, "the end of the file") : err;
}

/* ---- Plain text -------------------------------------------------------------------- */

static int read_paragraphs(struct reader *r)
{
    const char *line, *start = NULL, *end = NULL;
    size_t len;
    int err = 0;

    for (size_t number = 1; !err && next_line(r, &line, &len); number++) {
        bool blank = is_blank(line, len);
        if (!blank && !start) {
            start = line;
            set_where(r, "line", number);
        }
        if (!blank)
            end = line + len;
        if (start && (blank || r->at == r->len)) {
            err = add_text(r, start, (size_t)(end - start));
            start = NULL;
        }
        show_at(r);
    }
    return err;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

int documents_read(struct documents *d, const struct data_config *c, const char *text,
                   size_t len)
{
    struct reader r = {.config = c, .out = d, .text = text, .len = len};
    int err;

    snprintf(r.where, sizeof(r.where), "%.300s", c->path);
    show(&r, 0);
    if (ends_with(c->path, ".jsonl"))
        err = read_lines(&r);
    else if (ends_with(c->path, ".json"))
        err = read_json(&r);
    else
        err = c->pack ? add_text(&r, text, len) : read_paragraphs(&r);
    if (!err)
        show(&r, 1);
    free(r.ids);
    return err;
}

void documents_fini(struct documents *d)
{
    free(d->ids);
    free(d->ends);
    *d = (struct documents){0};
}
