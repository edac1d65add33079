/* Regular expressions of tokenizer files, compiled and searched with PCRE2. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "stages/pattern.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"

struct pattern {
    pcre2_code *code;
    char *source;  /* as it was given */
    char text[80]; /* for messages */
};

/* A search may take this many steps, and this many per byte of text. Sound patterns of
 * tokenizers take a few per byte. */
enum { STEPS = 1 << 20, STEPS_PER_BYTE = 32 };

enum { STACK_START = 32 << 10, STACK_LIMIT = 32 << 20, HEAP_LIMIT_KIB = 256 << 10 };

static int compile(struct pattern *p, const char *regex, size_t len, uint32_t options,
                   const char *name)
{
    PCRE2_UCHAR why[128];
    PCRE2_SIZE at = 0;
    int code = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);

    if (!context)
        return file_no_memory(name);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    p->code = pcre2_compile((PCRE2_SPTR)regex, len, options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (p->code) {
        /* Without just-in-time compilation the interpreter does the same, slower. */
        pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
        return 0;
    }
    pcre2_get_error_message(code, why, sizeof(why));
    log_error("%s: pattern \"%s\": %s", name, p->text, (const char *)why);
    return -EINVAL;
}

int pattern_create(struct pattern **out, const char *regex, size_t len, bool literal,
                   const char *name)
{
    /* Oniguruma's ^ and $ are those of a line. */
    uint32_t options =
        literal ? PCRE2_LITERAL | PCRE2_UTF
                : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    struct text translated = {0};
    int err;

    struct pattern *p = calloc(1, sizeof(*p));
    if (!p)
        return file_no_memory(name);
    file_text(p->text, sizeof(p->text), regex, len);
    p->source = strndup(regex, len);
    if (!p->source) {
        err = file_no_memory(name);
    } else if (literal) {
        err = compile(p, regex, len, options, name);
    } else {
        err = pattern_translate(&translated, regex, len, name);
        if (!err)
            err = compile(p, translated.data ? translated.data : "", translated.len,
                          options, name);
    }
    text_fini(&translated);
    if (err) {
        pattern_destroy(p);
        return err;
    }
    *out = p;
    return 0;
}

void pattern_destroy(struct pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p->source);
    free(p);
}

const char *pattern_source(const struct pattern *p)
{
    return p->source;
}

static int work_init(struct pattern_work *w)
{
    if (w->stack)
        return 0;
    w->data = w->data ? w->data : pcre2_match_data_create(1, NULL);
    w->context = w->context ? w->context : pcre2_match_context_create(NULL);
    w->stack = pcre2_jit_stack_create(STACK_START, STACK_LIMIT, NULL);
    if (!w->data || !w->context)
        return file_no_memory("tokenizer");
    pcre2_set_heap_limit(w->context, HEAP_LIMIT_KIB);
    if (w->stack)
        pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return 0;
}

static int failed(const struct pattern *p, int code)
{
    PCRE2_UCHAR why[128];

    if (code == PCRE2_ERROR_NOMEMORY)
        return file_no_memory("tokenizer");
    pcre2_get_error_message(code, why, sizeof(why));
    log_error("tokenizer: pattern \"%s\" cannot be searched in this text: %s", p->text,
              (const char *)why);
    return -E2BIG;
}

int pattern_find(const struct pattern *p, struct pattern_work *w, const char *text,
                 size_t len, size_t from, size_t *start, size_t *end)
{
    int err = work_init(w);
    if (err)
        return err;
    size_t steps = STEPS + STEPS_PER_BYTE * (len - from);
    pcre2_set_match_limit(w->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
    int code = pcre2_match(p->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK,
                           w->data, w->context);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT)
        code = pcre2_match(p->code, (PCRE2_SPTR)text, len, from,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->data, w->context);
    if (code == PCRE2_ERROR_NOMATCH)
        return 0;
    if (code < 0)
        return failed(p, code);
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(w->data);
    *start = span[0];
    *end = span[1];
    /* \K in a lookaround can put the start anywhere. */
    if (*start < from || *end < *start || *end > len)
        return failed(p, PCRE2_ERROR_BADOFFSET);
    return 1;
}

void pattern_work_fini(struct pattern_work *w)
{
    pcre2_jit_stack_free(w->stack);
    pcre2_match_context_free(w->context);
    pcre2_match_data_free(w->data);
    *w = (struct pattern_work){0};
}
