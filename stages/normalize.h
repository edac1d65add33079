/* Normalizers: what is done to text before it is cut into pieces. */
#ifndef PENSTOCK_NORMALIZE_H
#define PENSTOCK_NORMALIZE_H

#include "stages/pattern.h"

enum norm_kind {
    NORM_NFC,
    NORM_NFD,
    NORM_NFKC,
    NORM_NFKD,
    NORM_PREPEND, /* text before what is not empty */
    NORM_OPEN,    /* the same, only at the start and behind special tokens */
    NORM_REPLACE, /* matches of the pattern by text */
};

struct norm_step {
    enum norm_kind kind;
    struct pattern *pattern; /* owned */
    struct text text;        /* owned */
};

struct normalizer {
    struct norm_step *steps; /* (n) */
    size_t n, cap;
};

/* Adds a step; takes its pattern and text over, also when it fails. -ENOMEM. */
int normalizer_add(struct normalizer *n, struct norm_step step);
void normalizer_fini(struct normalizer *n);

struct norm_work {
    struct text text, next;
    struct pattern_work pattern;
};

/* Normalises valid UTF-8 into w->text. open: it is at the start or behind a special
 * token. */
int normalize(const struct normalizer *n, struct norm_work *w, const char *text,
              size_t len, bool open);
void norm_work_fini(struct norm_work *w);

/* Appends the Unicode normalisation form of valid UTF-8. */
int normalize_form(struct text *out, enum norm_kind form, const char *text, size_t len);

#endif
