/* Added tokens. Matching is that of the tokenizers library: from the left, the longest at
 * each place. */
#include "stages/added.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int node_add(struct added *a, uint8_t byte)
{
    int err =
        text_room((void **)&a->nodes, &a->nodes_cap, a->n_nodes, 1, sizeof(*a->nodes));
    if (!err)
        a->nodes[a->n_nodes++] =
            (struct added_node){.child = -1, .sibling = -1, .token = -1, .byte = byte};
    return err;
}

/* The child of a node for a byte, or -1. */
static int32_t child(const struct added *a, int32_t node, uint8_t byte)
{
    if (node == 0)
        return a->first[byte];
    int32_t i = a->nodes[node].child;
    while (i >= 0 && a->nodes[i].byte != byte)
        i = a->nodes[i].sibling;
    return i;
}

static int child_add(struct added *a, int32_t node, uint8_t byte)
{
    int err = node_add(a, byte);
    if (err)
        return err;
    int32_t new = (int32_t)a->n_nodes - 1;
    a->nodes[new].sibling = a->nodes[node].child;
    a->nodes[node].child = new;
    if (node == 0)
        a->first[byte] = new;
    return 0;
}

int added_insert(struct added *a, const char *content, size_t len,
                 struct added_token token)
{
    int err = a->n_nodes ? 0 : node_add(a, 0);
    int32_t node = 0, next;

    if (a->n_nodes == 1)
        memset(a->first, -1, sizeof(a->first));
    if (!err && (len > INT32_MAX || a->n_nodes > INT32_MAX - len))
        err = -ENOMEM;
    for (size_t i = 0; i < len && !err; i++, node = next) {
        uint8_t byte = (uint8_t)content[i];
        next = child(a, node, byte);
        if (next >= 0)
            continue;
        err = child_add(a, node, byte);
        next = (int32_t)a->n_nodes - 1;
    }
    if (!err && a->nodes[node].token >= 0)
        return -EEXIST;
    if (!err)
        err = text_room((void **)&a->tokens, &a->tokens_cap, a->n, 1, sizeof(*a->tokens));
    if (err)
        return err;
    a->nodes[node].token = (int32_t)a->n;
    a->tokens[a->n++] = token;
    return 0;
}

void added_fini(struct added *a)
{
    free(a->tokens);
    free(a->nodes);
    *a = (struct added){0};
}

/* The longest token at the start of (len) bytes, or NULL. */
static const struct added_token *longest(const struct added *a, const char *s, size_t len,
                                         bool special, size_t *token_len)
{
    const struct added_token *best = NULL;
    int32_t node = 0;

    for (size_t i = 0; i < len; i++) {
        node = child(a, node, (uint8_t)s[i]);
        if (node < 0)
            break;
        int32_t t = a->nodes[node].token;
        if (t < 0 || (a->tokens[t].special && !special))
            continue;
        best = &a->tokens[t];
        *token_len = i + 1;
    }
    return best;
}

static bool word_before(const char *s, size_t at)
{
    uint32_t code = 0;
    size_t start = at ? utf8_back(s, at) : 0;
    return at && utf8_next(&code, s + start, at - start) && code_is_word(code);
}

static bool word_behind(const char *s, size_t len)
{
    uint32_t code = 0;
    return utf8_next(&code, s, len) && code_is_word(code);
}

static size_t spaces_before(const char *s, size_t at, size_t least)
{
    uint32_t code = 0;

    while (at > least) {
        size_t start = utf8_back(s, at);
        if (!utf8_next(&code, s + start, at - start) || !code_is_space(code))
            break;
        at = start;
    }
    return at > least ? at : least;
}

static size_t spaces_behind(const char *s, size_t len)
{
    uint32_t code = 0;
    size_t at = 0, n;

    while ((n = utf8_next(&code, s + at, len - at)) && code_is_space(code))
        at += n;
    return at;
}

const struct added_token *added_next(struct added_walk *w, size_t *plain,
                                     size_t *plain_len)
{
    size_t n = 0;

    *plain = w->done;
    for (; w->added->n && w->scan < w->len; w->scan++) {
        const struct added_token *t =
            longest(w->added, w->text + w->scan, w->len - w->scan, w->special, &n);
        if (!t)
            continue;
        size_t start = w->scan, end = start + n;
        w->scan = end;
        if (t->single_word &&
            (word_before(w->text, start) || word_behind(w->text + end, w->len - end))) {
            w->scan--;
            continue;
        }
        if (t->lstrip)
            start = spaces_before(w->text, start, w->done);
        if (t->rstrip)
            end += spaces_behind(w->text + end, w->len - end);
        *plain_len = start > w->done ? start - w->done : 0;
        w->done = end;
        return t;
    }
    *plain_len = w->len - w->done;
    w->done = w->len;
    return NULL;
}
