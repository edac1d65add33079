/* Text to token ids and back. */
#ifndef PENSTOCK_TOKENIZER_H
#define PENSTOCK_TOKENIZER_H

#include "kernels/base.h"

struct model;
struct tokenizer;

/* From the model's tokenizer.json or GGUF metadata. *out NULL and 0 if the model has
 * no tokenizer; one line and -EINVAL, -ENOTSUP if it has one that is malformed or
 * unknown. */
int tokenizer_open(struct tokenizer **out, const struct model *m);
int tokenizer_parse_json(struct tokenizer **out, const char *json, size_t len,
                         const char *name);
void tokenizer_close(struct tokenizer *t);

/* special: recognise special tokens such as <|im_end|> in the text; bos: add the
 * sequence-start token if the model's files ask for one, unless special text begins with
 * it already. *ids (*n) is freed by the caller. Invalid UTF-8 is encoded byte by byte
 * where the vocabulary allows, else left out. -E2BIG and one line for a text beyond 1
 * GiB, or one that a pattern of the tokenizer cannot search in reasonable time. */
int tokenizer_encode(const struct tokenizer *t, int32_t **ids, size_t *n,
                     const char *text, size_t len, bool special, bool bos);

/* The text of ids, special tokens left out unless asked. *text is terminated, *len
 * without the terminator, freed by the caller. -EINVAL and one line for an id outside of
 * the vocabulary. */
int tokenizer_decode(const struct tokenizer *t, char **text, size_t *len,
                     const int32_t *ids, size_t n, bool special);

/* Incremental decoding for streams: feeds one id, returns the bytes that are now certain
 * (complete UTF-8); the concatenation over a stream, flush included, equals
 * tokenizer_decode. text is valid until the next call. */
struct tokenizer_stream;
int tokenizer_stream_create(struct tokenizer_stream **out, const struct tokenizer *t);
void tokenizer_stream_destroy(struct tokenizer_stream *s);
int tokenizer_stream_next(struct tokenizer_stream *s, int32_t id, const char **text,
                          size_t *len);
int tokenizer_stream_flush(struct tokenizer_stream *s, const char **text, size_t *len);

size_t tokenizer_size(const struct tokenizer *t);
/* -1 if the vocabulary has no such token. */
int32_t tokenizer_find(const struct tokenizer *t, const char *token);

/* Chat templates: the known forms, recognised from the model's own template. */
enum chat_form {
    CHAT_NONE,
    CHAT_CHATML,
    CHAT_LLAMA3,
    CHAT_DEEPSEEK_R1,
    CHAT_ZEPHYR,
    CHAT_MISTRAL
};
struct chat_message {
    const char *role; /* system, user, assistant */
    const char *text;
};
/* CHAT_NONE, and one line that says so, if the template is unknown or absent
 * (-ENOTSUP). */
int chat_detect(enum chat_form *form, const struct model *m);
/* The prompt text, opened for the assistant's answer; special tokens spelt out, to be
 * encoded with special = true. The start token is in it where the template writes one:
 * bos = false encodes just what the template says. The default system message that a
 * model's template adds is added too; Llama 3.1's dates are the template's, or today's
 * where it asks for them. At most one system message, the first; the last message is the
 * user's: else -EINVAL and one line. -ENOTSUP if the form is not that of the model. */
int chat_render(char **text, enum chat_form form, const struct model *m,
                const struct chat_message *messages, size_t n);

#endif
