/* Normalizers: Unicode forms (UAX 15), prefixes, replacements. */
#include "stages/normalize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "stages/file.h"

int normalizer_add(struct normalizer *n, struct norm_step step)
{
    int err = text_room((void **)&n->steps, &n->cap, n->n, 1, sizeof(*n->steps));
    if (!err) {
        n->steps[n->n++] = step;
        return 0;
    }
    pattern_destroy(step.pattern);
    text_fini(&step.text);
    return err;
}

void normalizer_fini(struct normalizer *n)
{
    for (size_t i = 0; i < n->n; i++) {
        pattern_destroy(n->steps[i].pattern);
        text_fini(&n->steps[i].text);
    }
    free(n->steps);
    *n = (struct normalizer){0};
}

struct codes {
    utf8proc_int32_t *data; /* (n) */
    size_t n, cap;
};

static int decompose(struct codes *out, enum norm_kind form, const char *text, size_t len)
{
    bool compat = form == NORM_NFKC || form == NORM_NFKD;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    enum { LONGEST = 32 }; /* no character decomposes into more */
    uint32_t code = 0;
    int boundary = 0;

    for (size_t at = 0; at < len;) {
        int err = text_room((void **)&out->data, &out->cap, out->n, LONGEST,
                            sizeof(*out->data));
        if (err)
            return err;
        at += utf8_next(&code, text + at, len - at);
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)code, out->data + out->n, LONGEST,
                                    (utf8proc_option_t)options, &boundary);
        out->n += n > 0 && n <= LONGEST ? (size_t)n : 0;
    }
    return 0;
}

static unsigned combining_class(utf8proc_int32_t code)
{
    return (unsigned)utf8proc_get_property(code)->combining_class;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts n marks by their combining class and, within one, by their place: keys of class,
 * place, code. A run may be as long as the text, so it is no place for the usual exchange
 * of neighbours. */
static int order_run(utf8proc_int32_t *run, size_t n)
{
    uint64_t *keys = n > 1 ? malloc(n * sizeof(*keys)) : NULL;
    if (n <= 1)
        return 0;
    if (!keys)
        return file_no_memory("tokenizer");
    for (size_t i = 0; i < n; i++)
        keys[i] = (uint64_t)combining_class(run[i]) << 56 | (uint64_t)i << 21 |
                  (uint32_t)run[i];
    qsort(keys, n, sizeof(*keys), by_key);
    for (size_t i = 0; i < n; i++)
        run[i] = (utf8proc_int32_t)(keys[i] & 0x1fffff);
    free(keys);
    return 0;
}

static int order(struct codes *c)
{
    int err = 0;

    for (size_t i = 0, j; i < c->n && !err; i = j) {
        for (j = i; j < c->n && combining_class(c->data[j]); j++)
            ;
        err = order_run(c->data + i, j - i);
        j += j == i;
    }
    return err;
}

int normalize_form(struct text *out, enum norm_kind form, const char *text, size_t len)
{
    struct codes c = {0};
    char bytes[4];
    int err = decompose(&c, form, text, len);

    if (!err)
        err = order(&c);
    if (!err && c.n && (form == NORM_NFC || form == NORM_NFKC)) {
        utf8proc_ssize_t n = utf8proc_normalize_utf32(
            c.data, (utf8proc_ssize_t)c.n,
            (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
        c.n = n < 0 ? 0 : (size_t)n;
    }
    for (size_t i = 0; i < c.n && !err; i++)
        err = text_add(out, bytes, utf8_put(bytes, (uint32_t)c.data[i]));
    free(c.data);
    return err;
}

static bool is_ascii(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)s[i] >= 0x80)
            return false;
    return true;
}

static int replace(const struct norm_step *step, struct norm_work *w)
{
    const struct text *t = &w->text;
    size_t done = 0, from = 0, start, end;
    uint32_t code;
    int err = 0, found = 0;

    while (!err && from <= t->len &&
           (found = pattern_find(step->pattern, &w->pattern, t->data, t->len, from,
                                 &start, &end)) > 0) {
        err = text_add(&w->next, t->data + done, start - done);
        if (!err)
            err = text_add(&w->next, step->text.data, step->text.len);
        done = from = end;
        if (start == end)
            from += end < t->len ? utf8_next(&code, t->data + end, t->len - end) : 1;
    }
    err = err ? err : found < 0 ? found : 0;
    return err ? err : text_add(&w->next, t->data + done, t->len - done);
}

static int run_step(const struct norm_step *step, struct norm_work *w, bool open)
{
    const struct text *t = &w->text;
    int err = 0;

    w->next.len = 0;
    switch (step->kind) {
    case NORM_PREPEND:
    case NORM_OPEN:
        if (step->kind == NORM_PREPEND || open)
            err = text_add(&w->next, step->text.data, step->text.len);
        err = err ? err : text_add(&w->next, t->data, t->len);
        break;
    case NORM_REPLACE:
        err = replace(step, w);
        break;
    default:
        if (is_ascii(t->data, t->len))
            return 0;
        err = normalize_form(&w->next, step->kind, t->data, t->len);
    }
    struct text swap = w->text;
    w->text = w->next;
    w->next = swap;
    return err;
}

int normalize(const struct normalizer *n, struct norm_work *w, const char *text,
              size_t len, bool open)
{
    w->text.len = 0;
    int err = text_add(&w->text, text, len);
    for (size_t i = 0; i < n->n && !err && w->text.len; i++)
        err = run_step(&n->steps[i], w, open);
    return err;
}

void norm_work_fini(struct norm_work *w)
{
    text_fini(&w->text);
    text_fini(&w->next);
    pattern_work_fini(&w->pattern);
}
