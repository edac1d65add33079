/* Pre-tokenizers: they cut text into the pieces that are encoded one by one. */
#ifndef PENSTOCK_PRETOKENIZE_H
#define PENSTOCK_PRETOKENIZE_H

#include "stages/pattern.h"

/* What becomes of a pattern's matches. */
enum pre_behavior { PRE_REMOVED, PRE_ISOLATED, PRE_PREVIOUS, PRE_NEXT, PRE_CONTIGUOUS };

enum pre_kind {
    PRE_SPLIT,
    PRE_SPACE,    /* a space before every piece that has none */
    PRE_METASPACE /* spaces become `mark`, and one goes before a piece */
};

/* Which pieces PRE_METASPACE marks. */
enum pre_scheme { PRE_ALWAYS, PRE_FIRST, PRE_NEVER };

struct pre_step {
    enum pre_kind kind;
    struct pattern *pattern; /* PRE_SPLIT; owned */
    enum pre_behavior behavior;
    bool invert; /* what does not match counts as a match */
    enum pre_scheme scheme;
    char mark[8]; /* PRE_METASPACE; terminated */
};

struct pretokenizer {
    struct pre_step *steps; /* (n) */
    size_t n, cap;
};

/* Adds a step; takes its pattern over, also when it fails. -ENOMEM. */
int pretokenizer_add(struct pretokenizer *p, struct pre_step step);
/* Adds a split by a pattern, isolating its matches. */
int pretokenizer_split(struct pretokenizer *p, const char *regex, const char *name);
void pretokenizer_fini(struct pretokenizer *p);

struct span {
    size_t at, len;
};

struct spans {
    struct span *data; /* (n) */
    size_t n, cap;
};

/* The scratch and the result of one caller; zeroed before its first use. */
struct pre_work {
    struct text text, next_text;
    struct spans pieces, next; /* of text */
    struct pattern_work pattern;
};

/* Cuts valid UTF-8 into w->pieces of w->text. first: it is the beginning of what the user
 * gave. */
int pretokenize(const struct pretokenizer *p, struct pre_work *w, const char *text,
                size_t len, bool first);
void pre_work_fini(struct pre_work *w);

#endif
