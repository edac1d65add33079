/* Prompts and token ids as files give them. */
#ifndef PENSTOCK_PROMPTS_H
#define PENSTOCK_PROMPTS_H

#include "runtime/penstock.h"

struct prompt_list {
    struct penstock_prompt *items; /* (n); their ids are owned */
    int n, cap;
};

void prompts_free(struct prompt_list *p);

/* Adds ids, which the list owns from now on. */
int prompts_add(struct prompt_list *p, int32_t *ids, size_t n);

/* Adds a text, in the model's chat form if `chat`. */
int prompts_add_text(struct prompt_list *p, struct penstock_text *t, const char *text,
                     size_t len, bool chat);

/* Every line of a JSONL file: {"prompt": TEXT} or {"ids": [...]}. */
int prompts_add_jsonl(struct prompt_list *p, struct penstock_text *t, const char *path,
                      bool chat);

/* A JSON list of lists of token ids, or one list of ids. */
int prompts_add_ids(struct prompt_list *p, const char *path);

#endif
