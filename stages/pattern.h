/* Regular expressions of tokenizer files: written for Oniguruma, run by PCRE2. */
#ifndef PENSTOCK_PATTERN_H
#define PENSTOCK_PATTERN_H

#include "stages/utf8.h"

struct pattern;

/* Compiles what tokenizer.json has as "Regex" or, literal, as "String"; terminated.
 * -EINVAL for what is no pattern, -ENOTSUP for Oniguruma's syntax without an equal in
 * PCRE2; one line. */
int pattern_create(struct pattern **out, const char *regex, size_t len, bool literal,
                   const char *name);
void pattern_destroy(struct pattern *p);
/* What it was made of. */
const char *pattern_source(const struct pattern *p);

/* The same expression in PCRE2's syntax, appended to out. -ENOTSUP, -ENOMEM and one
 * line. */
int pattern_translate(struct text *out, const char *regex, size_t len, const char *name);

/* The scratch of one thread; zeroed before its first use. */
struct pattern_work {
    struct pcre2_real_match_data_8 *data;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
};

/* The first match in (len) bytes of valid UTF-8 that starts at `from` or later. 1 and
 * [*start, *end), 0 for none; -E2BIG and one line if the search is endless for all
 * practical purposes. */
int pattern_find(const struct pattern *p, struct pattern_work *w, const char *text,
                 size_t len, size_t from, size_t *start, size_t *end);
void pattern_work_fini(struct pattern_work *w);

#endif
