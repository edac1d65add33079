/* Added tokens: those that are matched in the text as they stand, before anything
 * else. */
#ifndef PENSTOCK_ADDED_H
#define PENSTOCK_ADDED_H

#include "stages/utf8.h"

struct added_token {
    int32_t id;
    bool special;
    bool single_word;    /* not inside of a word */
    bool lstrip, rstrip; /* takes the white space on that side */
};

struct added_node {
    int32_t child, sibling; /* -1: none */
    int32_t token;          /* that ends here, -1: none */
    uint8_t byte;
};

/* A set of them, as a tree over bytes. Node 0 is the root. */
struct added {
    struct added_token *tokens;
    size_t n, tokens_cap;
    struct added_node *nodes;
    size_t n_nodes, nodes_cap;
    int32_t first[256]; /* the root's children by byte, -1: none */
};

/* Content must not be empty. -EEXIST (silent) if it is there already, -ENOMEM. */
int added_insert(struct added *a, const char *content, size_t len,
                 struct added_token token);
void added_fini(struct added *a);

/* A walk over a text of (len) bytes. */
struct added_walk {
    const struct added *added;
    const char *text;
    size_t len;
    bool special; /* match special tokens too */
    size_t scan;  /* where the next search begins */
    size_t done;  /* end of what was handed out */
};

/* The next token and the plain text before it: [*plain, *plain + *plain_len), which may
 * be empty. NULL: the rest is plain. */
const struct added_token *added_next(struct added_walk *w, size_t *plain,
                                     size_t *plain_len);

#endif
