/* SentencePiece's BPE: its vocabulary has scores instead of merges. Whatever two tokens
 * make a third when put side by side is a merge, ranked by the score of that third. */
#include <errno.h>
#include <stdlib.h>

#include "stages/file.h"
#include "stages/tokenizer_parts.h"

/* Longer tokens than this do not come from SentencePiece, and would take long to
 * split. */
enum { MAX_MERGED = 1024 };

struct scored {
    double score;
    int32_t id;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* A token that merges can make or use. */
static int32_t find_normal(const struct vocab *v, const char *data, size_t len)
{
    int32_t id = vocab_find(v, data, len);
    return id >= 0 && v->tokens[id].kind == VOCAB_NORMAL ? id : -1;
}

/* Counts the pairs that make a token, and adds them unless rank is NULL. */
static size_t pairs(struct tokenizer *t, int32_t id, const uint32_t *rank)
{
    const struct vocab *v = &t->vocab;
    const char *text = vocab_text(v, (size_t)id);
    size_t len = v->tokens[id].len, n = 0;

    for (size_t i = 1; i < len; i++) {
        if (((uint8_t)text[i] & 0xc0) == 0x80)
            continue;
        int32_t left = find_normal(v, text, i);
        int32_t right = left < 0 ? -1 : find_normal(v, text + i, len - i);
        if (right < 0)
            continue;
        n++;
        if (rank)
            bpe_add(&t->bpe, left, right, id, *rank);
    }
    return n;
}

/* The tokens that can be merges, best first. */
static struct scored *sort_tokens(const struct tokenizer *t, const double *scores,
                                  size_t *n)
{
    const struct vocab *v = &t->vocab;
    struct scored *sorted = malloc((v->n + 1) * sizeof(*sorted));

    *n = 0;
    for (size_t i = 0; sorted && i < v->n; i++)
        if (v->tokens[i].kind == VOCAB_NORMAL && v->tokens[i].len <= MAX_MERGED)
            sorted[(*n)++] = (struct scored){scores[i], (int32_t)i};
    if (sorted)
        qsort(sorted, *n, sizeof(*sorted), by_score);
    return sorted;
}

int tokenizer_score_merges(struct tokenizer *t, const double *scores, const char *name)
{
    size_t n, merges = 0;
    uint32_t rank = 0;
    struct scored *sorted = sort_tokens(t, scores, &n);

    if (!sorted)
        return file_no_memory(name);
    for (size_t i = 0; i < n; i++)
        merges += pairs(t, sorted[i].id, NULL);
    int err = bpe_init(&t->bpe, merges);
    for (size_t i = 0; i < n && !err; i++) {
        rank += i && sorted[i].score != sorted[i - 1].score;
        pairs(t, sorted[i].id, &rank);
    }
    free(sorted);
    if (!err)
        tokenizer_find_bytes(t);
    return err;
}
