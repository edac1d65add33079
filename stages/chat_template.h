/* The chat template of a model, taken apart into the texts that it writes. */
#ifndef PENSTOCK_CHAT_TEMPLATE_H
#define PENSTOCK_CHAT_TEMPLATE_H

#include "stages/utf8.h"

struct model;

/* A text in a Jinja template: a quoted string, or what stands outside of tags. */
struct chat_literal {
    const char *at, *end; /* its place in the template */
    char *text;           /* without escapes, and trimmed as transformers has Jinja trim;
                             terminated, owned */
    bool raw;             /* outside of tags */
};

struct chat_template {
    struct text source; /* terminated; empty if the model has none */
    struct text dense;  /* the same without white space, to look for expressions */
    char *bos, *eos;    /* texts of the start and end tokens; "" if unknown */
    struct chat_literal *literals; /* (n) in order */
    size_t n, cap;
};

/* Reads the template of a model's files, if there is one. -errno and one line. */
int chat_template_open(struct chat_template *c, const struct model *m);
/* The same from text. */
int chat_template_parse(struct chat_template *c, const char *source, size_t len);
void chat_template_fini(struct chat_template *c);

/* The first literal at or behind `from` (NULL: the beginning) that contains `text`, or NULL. */
const struct chat_literal *chat_literal_find(const struct chat_template *c,
                                             const char *from, const char *text);

#endif
