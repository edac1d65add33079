/* Sequences of training data, and the order in which they come. */
#include "stages/data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/data_read.h"
#include "stages/file.h"
#include "stages/random.h"

/* The shuffled sequences of one epoch. */
struct data_order {
    size_t *index; /* (train) */
    uint64_t epoch;
};

struct data {
    struct documents docs;
    size_t positions;
    size_t train, held_out; /* sequences: the first ones, the last ones */
    bool pack, shuffle;
    uint64_t seed;
    struct data_order orders[2]; /* of the last even and the last odd epoch */
};

static int check_config(const struct data_config *c)
{
    const char *why = NULL;

    if (c->positions < 1)
        why = "sequences of one token have nothing to predict";
    else if (!(c->held_out >= 0 && c->held_out < 1))
        why = "the held-out share must be at least 0 and less than 1";
    else if (c->pack && c->eos >= 0 && (size_t)c->eos >= c->vocabulary)
        why = "the token that ends a document is not in the vocabulary";
    if (why)
        log_error("%s: %s", c->path, why);
    return why ? -EINVAL : 0;
}

/* Windows of a packed stream. */
static size_t windows(size_t tokens, size_t positions)
{
    if (tokens < 2)
        return 0;
    return tokens - 1 < positions ? 1 : (tokens - 1) / positions;
}

/* Divides the sequences into training and held-out part. */
static int divide(struct data *d, const struct data_config *c)
{
    size_t n = d->pack ? windows(d->docs.n_ids, d->positions) : d->docs.n;

    if (!n) {
        log_error("%s: no sequence of two tokens or more: there is nothing to predict",
                  c->path);
        return -EINVAL;
    }
    d->held_out = (size_t)((double)n * c->held_out);
    if (c->held_out > 0 && !d->held_out)
        d->held_out = 1;
    if (d->held_out >= n) {
        log_error("%s: its %zu sequence%s cannot be divided into training and held-out",
                  c->path, n, n == 1 ? "" : "s");
        return -EINVAL;
    }
    d->train = n - d->held_out;
    if (d->docs.cut)
        log_warn("%s: documents cut at %zu tokens: %zu of %zu", c->path, d->positions + 1,
                 d->docs.cut, d->docs.n);
    return 0;
}

static int make_orders(struct data *d)
{
    for (size_t i = 0; i < ARRAY_LEN(d->orders) && d->shuffle; i++) {
        d->orders[i] = (struct data_order){calloc(d->train, sizeof(size_t)), UINT64_MAX};
        if (!d->orders[i].index)
            return log_no_memory("the order of the data");
    }
    return 0;
}

int data_parse(struct data **out, const struct data_config *c, const char *text,
               size_t len)
{
    *out = NULL;
    int err = check_config(c);
    struct data *d = err ? NULL : calloc(1, sizeof(*d));
    if (!d)
        return err ? err : log_no_memory("the data");
    d->positions = (size_t)c->positions;
    d->pack = c->pack;
    d->shuffle = c->shuffle;
    d->seed = c->seed;
    err = documents_read(&d->docs, c, text, len);
    if (!err)
        err = divide(d, c);
    if (!err)
        err = make_orders(d);
    if (err)
        data_close(d);
    else
        *out = d;
    return err;
}

int data_open(struct data **out, const struct data_config *c)
{
    struct file_map map;

    *out = NULL;
    int err = file_map(&map, c->path);
    if (err)
        return err;
    err = data_parse(out, c, (const char *)map.data, map.bytes);
    file_unmap(&map);
    return err;
}

void data_close(struct data *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < ARRAY_LEN(d->orders); i++)
        free(d->orders[i].index);
    documents_fini(&d->docs);
    free(d);
}

size_t data_sequences(const struct data *d)
{
    return d->train;
}

size_t data_held_out(const struct data *d)
{
    return d->held_out;
}

size_t data_tokens(const struct data *d)
{
    return d->docs.n_ids;
}

uint64_t data_fingerprint(const struct data *d)
{
    const uint64_t scalars[] = {d->pack ? d->positions : 0, d->train, d->held_out,
                                d->shuffle, d->shuffle ? d->seed : 0};
    uint64_t h = 0;

    for (size_t i = 0; i < ARRAY_LEN(scalars); i++)
        h = random_mix(h ^ scalars[i]);
    for (size_t i = 0; i < d->docs.n && !d->pack; i++)
        h = random_mix(h ^ d->docs.ends[i]);
    for (size_t i = 0; i < d->docs.n_ids; i++)
        h = random_mix(h ^ (uint64_t)d->docs.ids[i]);
    return h;
}

/* Sequence i in the file's order. */
static void sequence(const struct data *d, size_t i, const int32_t **ids, size_t *n)
{
    size_t start, end;

    if (d->pack) {
        start = i * d->positions;
        end = start + d->positions + 1;
        end = end < d->docs.n_ids ? end : d->docs.n_ids;
    } else {
        start = i ? d->docs.ends[i - 1] : 0;
        end = d->docs.ends[i];
    }
    *ids = d->docs.ids + start;
    *n = end - start;
}

/* Fisher and Yates, from the file's order, with one draw of a counter-based generator for
 * each place. */
static void shuffle(size_t *index, size_t n, uint64_t seed, uint64_t epoch)
{
    uint64_t key = random_mix(random_mix(seed) ^ epoch);

    for (size_t i = 0; i < n; i++)
        index[i] = i;
    for (size_t i = n; i-- > 1;) {
        /* The draw scaled to [0, i]: its bias is below 2^-64 (i + 1). */
        size_t j = (size_t)((unsigned __int128)random_mix(key + i) * (i + 1) >> 64);
        size_t swap = index[i];
        index[i] = index[j];
        index[j] = swap;
    }
}

void data_get(struct data *d, uint64_t index, const int32_t **ids, size_t *n)
{
    uint64_t epoch = index / d->train;
    size_t i = (size_t)(index % d->train);

    if (d->shuffle) {
        struct data_order *o = &d->orders[epoch % 2];
        if (o->epoch != epoch)
            shuffle(o->index, d->train, d->seed, epoch);
        o->epoch = epoch;
        i = o->index[i];
    }
    sequence(d, i, ids, n);
}

void data_get_held_out(const struct data *d, size_t i, const int32_t **ids, size_t *n)
{
    sequence(d, d->train + i, ids, n);
}
