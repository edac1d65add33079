/* Training data: the documents of a file as sequences of token ids, in an endless order
 * that a number resumes. */
#ifndef PENSTOCK_DATA_H
#define PENSTOCK_DATA_H

#include "kernels/base.h"

struct data;
struct tokenizer;

struct data_config {
    const char *path;                  /* its name says its format, see data_open */
    const struct tokenizer *tokenizer; /* NULL: the file must hold ids */
    int32_t eos; /* ends every document where they are packed; -1: none */
    bool bos;    /* texts begin with the start token if the model's files ask for one */
    size_t vocabulary; /* ids are below this */
    int positions;     /* T: predicted positions of a sequence, which has a token more */
    /* Documents one behind the other, cut into windows of T + 1 tokens with stride T; else
     * every document is a sequence of its first T + 1 tokens. */
    bool pack;
    bool shuffle; /* a new order in every epoch; else that of the file */
    uint64_t seed;
    double held_out; /* [0, 1): share of the sequences, the file's last, not trained on */
    void (*progress)(void *user, const char *what, double done); /* 0..1; NULL: none */
    void *user;
};

/* Reads a file:
 * - .jsonl: JSON lines, each {"text": "..."}, {"ids": [...]} or {"input_ids": [...]}, one
 *   document; other keys and blank lines are left out;
 * - .json: a list of lists of ids, each a document, or one list of ids;
 * - any other: plain text, packed one document; else every paragraph is one, without the
 *   blank lines around it.
 * Special tokens are not recognised in text. Documents without tokens are left out, and
 * unpacked those of one token. Packing puts eos behind a document unless it ends with it,
 * and drops a last window of less than T + 1 tokens unless it is the only one. One line
 * and -EINVAL for bad data, data without a target, and a held-out part that leaves
 * nothing; -errno for a file that cannot be read; -E2BIG for a text beyond 1 GiB. A
 * document's text is encoded whole, as no place is safe to cut for every tokenizer; that
 * takes some 10 to 25 times its bytes for a while. */
int data_open(struct data **out, const struct data_config *c);
/* The same from (len) bytes; the path is for the format and for messages. */
int data_parse(struct data **out, const struct data_config *c, const char *text,
               size_t len);
void data_close(struct data *d);

size_t data_sequences(const struct data *d); /* of one epoch, at least 1 */
size_t data_held_out(const struct data *d);  /* sequences; at least 1 if asked for */
size_t data_tokens(const struct data *d); /* of all documents, as far as they are kept */

/* Of all that decides what data_get returns: tokens, cuts, held-out part, order. */
uint64_t data_fingerprint(const struct data *d);

/* Sequence `index` of the order over all epochs: epoch index / data_sequences is shuffled
 * by (seed, epoch) alone, so that an index is all a run needs to go on. Costs a pass over
 * the epoch's sequences when the epoch changes; the last even and the last odd epoch are
 * kept. *ids (*n), n > 1, is borrowed until data_close. Not thread-safe. */
void data_get(struct data *d, uint64_t index, const int32_t **ids, size_t *n);
/* Sequence i < data_held_out(d), in the file's order. Where windows are packed, the first
 * shares one token with the training part: a target there, context here. */
void data_get_held_out(const struct data *d, size_t i, const int32_t **ids, size_t *n);

#endif
