/* Pre-tokenizers. */
#include "stages/pretokenize.h"

#include <stdlib.h>
#include <string.h>

int pretokenizer_add(struct pretokenizer *p, struct pre_step step)
{
    int err = text_room((void **)&p->steps, &p->cap, p->n, 1, sizeof(*p->steps));
    if (err)
        pattern_destroy(step.pattern);
    else
        p->steps[p->n++] = step;
    return err;
}

int pretokenizer_split(struct pretokenizer *p, const char *regex, const char *name)
{
    struct pre_step step = {.kind = PRE_SPLIT, .behavior = PRE_ISOLATED};
    int err = pattern_create(&step.pattern, regex, strlen(regex), false, name);
    return err ? err : pretokenizer_add(p, step);
}

void pretokenizer_fini(struct pretokenizer *p)
{
    for (size_t i = 0; i < p->n; i++)
        pattern_destroy(p->steps[i].pattern);
    free(p->steps);
    *p = (struct pretokenizer){0};
}

static int spans_add(struct spans *s, size_t at, size_t len)
{
    int err = text_room((void **)&s->data, &s->cap, s->n, 1, sizeof(*s->data));
    if (!err)
        s->data[s->n++] = (struct span){at, len};
    return err;
}

/* A splitter walks the parts of a piece, matches and what lies between them. */
struct splitter {
    enum pre_behavior behavior;
    struct spans *out;
    size_t first; /* of the piece, in out */
    bool last_match;
};

/* One part, in order; parts may be empty. */
static int part_add(struct splitter *s, size_t at, size_t len, bool match)
{
    bool have = s->out->n > s->first, join = false;

    if (s->behavior == PRE_REMOVED && match)
        return 0;
    if (s->behavior == PRE_CONTIGUOUS)
        join = match == s->last_match;
    else if (s->behavior == PRE_PREVIOUS)
        join = match && !s->last_match;
    else if (s->behavior == PRE_NEXT)
        join = s->last_match && !match;
    s->last_match = match;
    if (!join || !have)
        return spans_add(s->out, at, len);
    s->out->data[s->out->n - 1].len += len;
    return 0;
}

/* Drops the empty pieces of [first, n). */
static void drop_empty(struct spans *s, size_t first)
{
    size_t n = first;

    for (size_t i = first; i < s->n; i++)
        if (s->data[i].len)
            s->data[n++] = s->data[i];
    s->n = n;
}

/* Oniguruma's successive matches: an empty one does not follow a match directly. */
static int split_piece(const struct pre_step *step, struct pre_work *w, struct span piece)
{
    struct splitter s = {step->behavior, &w->next, w->next.n, false};
    const char *text = w->text.data + piece.at;
    size_t done = 0, from = 0, last = SIZE_MAX, start, end;
    int found = 0, err = 0;

    while (!err && from <= piece.len &&
           (found = pattern_find(step->pattern, &w->pattern, text, piece.len, from,
                                 &start, &end)) > 0) {
        if (start < end || start != last) {
            if (start > done)
                err = part_add(&s, piece.at + done, start - done, step->invert);
            if (!err)
                err = part_add(&s, piece.at + start, end - start, !step->invert);
            last = done = end;
        }
        uint32_t code;
        from = end;
        if (start == end)
            from += end < piece.len ? utf8_next(&code, text + end, piece.len - end) : 1;
    }
    err = err ? err : found < 0 ? found : 0;
    if (!err && done < piece.len)
        err = part_add(&s, piece.at + done, piece.len - done, step->invert);
    drop_empty(&w->next, s.first);
    return err;
}

/* A space before the piece, in the new text. */
static int space_piece(struct pre_work *w, struct span piece)
{
    const char *text = w->text.data + piece.at;
    size_t at = w->next_text.len;
    int err = *text == ' ' ? 0 : text_add(&w->next_text, " ", 1);

    err = err ? err : text_add(&w->next_text, text, piece.len);
    return err ? err : spans_add(&w->next, at, w->next_text.len - at);
}

/* first: the piece is the beginning of the text. */
static int mark_piece(const struct pre_step *step, struct pre_work *w, struct span piece,
                      bool first)
{
    const char *text = w->text.data + piece.at;
    size_t at = w->next_text.len, n = strlen(step->mark);
    bool mark = step->scheme == PRE_ALWAYS || (step->scheme == PRE_FIRST && first);
    bool marked = *text == ' ' || (piece.len >= n && !memcmp(text, step->mark, n));
    int err = mark && !marked ? text_add(&w->next_text, step->mark, n) : 0;

    for (size_t i = 0; i < piece.len && !err; i++)
        err = text[i] == ' ' ? text_add(&w->next_text, step->mark, n)
                             : text_add(&w->next_text, text + i, 1);
    return err ? err : spans_add(&w->next, at, w->next_text.len - at);
}

static int run_step(const struct pre_step *step, struct pre_work *w, bool first)
{
    int err = 0;

    w->next.n = w->next_text.len = 0;
    for (size_t i = 0; i < w->pieces.n && !err; i++) {
        struct span piece = w->pieces.data[i];
        if (step->kind == PRE_SPLIT)
            err = split_piece(step, w, piece);
        else if (step->kind == PRE_SPACE)
            err = space_piece(w, piece);
        else
            err = mark_piece(step, w, piece, first && piece.at == 0);
    }
    struct spans pieces = w->pieces;
    w->pieces = w->next;
    w->next = pieces;
    if (step->kind != PRE_SPLIT) {
        struct text text = w->text;
        w->text = w->next_text;
        w->next_text = text;
    }
    return err;
}

int pretokenize(const struct pretokenizer *p, struct pre_work *w, const char *text,
                size_t len, bool first)
{
    w->text.len = w->pieces.n = 0;
    int err = text_add(&w->text, text, len);
    if (!err && len)
        err = spans_add(&w->pieces, 0, len);
    for (size_t i = 0; i < p->n && !err; i++)
        err = run_step(&p->steps[i], w, first);
    return err;
}

void pre_work_fini(struct pre_work *w)
{
    text_fini(&w->text);
    text_fini(&w->next_text);
    free(w->pieces.data);
    free(w->next.data);
    pattern_work_fini(&w->pattern);
    *w = (struct pre_work){0};
}
