/* The forms of chat prompts, each recognised in a template and written by its own
 * file. */
#ifndef PENSTOCK_CHAT_H
#define PENSTOCK_CHAT_H

#include "stages/chat_template.h"
#include "stages/tokenizer.h"

/* A prompt that is being written. */
struct chat_writer {
    const struct chat_template *c;
    const struct chat_message *messages; /* (n); roles known, the last one the user's */
    size_t n;
    struct text out;
    int err; /* the first error; nothing is written after it */
};

/* Appends strings up to a NULL; the macro is for a list of them. */
void chat_write(struct chat_writer *w, const char *const *texts);
#define CHAT_WRITE(w, ...) chat_write(w, (const char *const[]){__VA_ARGS__, NULL})
void chat_write_bytes(struct chat_writer *w, const char *data, size_t len);
/* Text without white space around it if `trim`. */
void chat_write_text(struct chat_writer *w, const char *text, bool trim);

/* The expression, written without white space, is in the template. */
bool chat_has(const struct chat_template *c, const char *dense);
/* Whether the template trims messages. */
bool chat_trims(const struct chat_template *c);
/* What the template writes for add_generation_prompt, or always if it does not know that:
 * the literal with `marker`, or NULL. */
const struct chat_literal *chat_opening(const struct chat_template *c,
                                        const char *marker);
/* An answer in the history, without its reasoning where the template leaves that out. */
const char *chat_answer(const struct chat_template *c, const char *text);

struct chat_kind {
    enum chat_form form;
    bool (*known)(const struct chat_template *c);
    void (*write)(struct chat_writer *w);
};

extern const struct chat_kind chat_chatml, chat_llama3, chat_deepseek_r1, chat_zephyr,
    chat_mistral;

#endif
