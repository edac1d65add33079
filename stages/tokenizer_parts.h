/* What a tokenizer is made of, for the readers of its files. */
#ifndef PENSTOCK_TOKENIZER_PARTS_H
#define PENSTOCK_TOKENIZER_PARTS_H

#include "stages/added.h"
#include "stages/bpe.h"
#include "stages/normalize.h"
#include "stages/pretokenize.h"
#include "stages/tokenizer.h"

/* How tokens become text. */
struct tokenizer_decoder {
    char mark[8]; /* stands for a space, terminated; empty: none */
    bool bytes;   /* tokens <0xNN> are that byte */
    size_t strip; /* spaces dropped from the beginning of a text */
};

enum { TOKENIZER_MAX_BOS = 4 };

struct tokenizer {
    struct vocab vocab;
    struct bpe bpe;
    struct normalizer normalizer;
    struct added added;            /* matched in the text as it is */
    struct added added_normalized; /* matched after normalising */
    struct pretokenizer pre;
    struct tokenizer_decoder decoder;
    int32_t bos[TOKENIZER_MAX_BOS]; /* (n_bos) put first if asked for */
    size_t n_bos;
};

/* Ids beyond this are no vocabulary. */
#define TOKENIZER_MAX_ID ((1 << 24) - 1)

struct gguf;
struct json_t;

/* The readers. 0 or -errno, and one line. */
int tokenizer_read_gguf(struct tokenizer *t, const struct gguf *g, const char *name);
int tokenizer_read_json(struct tokenizer *t, const char *json, size_t len,
                        const char *name);
/* tokenizer_config.json of a folder overrules whether a start token comes first. */
int tokenizer_read_config(struct tokenizer *t, const char *dir);

/* Parts of tokenizer.json, null or absent ones too, in this order after the merges have
 * room. -ENOTSUP names what is unknown. */
int tokenizer_json_normalizer(struct tokenizer *t, const struct json_t *part,
                              const char *name);
int tokenizer_json_pre(struct tokenizer *t, const struct json_t *part, const char *name);
int tokenizer_json_decoder(struct tokenizer *t, const struct json_t *part,
                           const char *name);
int tokenizer_json_post(struct tokenizer *t, const struct json_t *part, const char *name);

/* The other way: the contents of tokenizer.json for a tokenizer of a GGUF file, released
 * with json_decref. -ENOTSUP for a vocabulary that such a file cannot hold, one line. */
int tokenizer_write_json(struct json_t **out, const struct tokenizer *t,
                         const char *name);

/* Registers an added token whose text is in the vocabulary. -EINVAL if another one has
 * the same text. */
int tokenizer_add(struct tokenizer *t, struct added_token token, const char *content,
                  size_t len, bool normalized, const char *name);

/* After the vocabulary is complete: the tokens of single bytes. */
void tokenizer_find_bytes(struct tokenizer *t);

/* Merges from a vocabulary with scores, as SentencePiece's BPE does them: of two
 * neighbours the pair whose union scores highest, of equal ones the leftmost. scores
 * (vocab.n). */
int tokenizer_score_merges(struct tokenizer *t, const double *scores, const char *name);

#endif
