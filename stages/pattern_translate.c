/* Oniguruma's regular expressions in PCRE2's syntax. Most of the two is the same and is
 * copied; what means something else is rewritten, and what has no equal is refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/pattern.h"

/* Items of a class. The last is a range, so that a hyphen behind it stays a hyphen.
 * PCRE2's \s has U+180E as well; its \w lacks marks and connectors. */
#define SPACE                                                                            \
    " \\x{85}\\x{a0}\\x{1680}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"              \
    "\\x{2000}-\\x{200a}\\t-\\r"
#define NOT_SPACE                                                                        \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}"         \
    "\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}"       \
    "\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD                                                                             \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"          \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
#define HEX "A-Fa-f0-9"

/* A reader of the pattern, and what it has written. */
struct reader {
    const char *at, *end, *name;
    struct text *out;
    bool in_class;
};

static int put(struct reader *r, const char *text)
{
    return text_add(r->out, text, strlen(text));
}

static int copy(struct reader *r, size_t n)
{
    size_t left = (size_t)(r->end - r->at);
    n = n < left ? n : left;
    r->at += n;
    return text_add(r->out, r->at - n, n);
}

static bool looking_at(const struct reader *r, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(r->end - r->at) >= n && !memcmp(r->at, text, n);
}

static int refuse(const struct reader *r, const char *what)
{
    char near[24];
    file_text(near, sizeof(near), r->at, (size_t)(r->end - r->at));
    log_error("%s: %s at \"%s\" in a pattern is not supported", r->name, what, near);
    return -ENOTSUP;
}

/* \p{NAME}: a name of three letters or more is a script, and PCRE2 takes those for script
 * extensions unless told. What is neither fails to compile. */
static int property(struct reader *r)
{
    const char *close = memchr(r->at, '}', (size_t)(r->end - r->at));

    if (r->end - r->at < 3 || r->at[2] != '{' || !close)
        return copy(r, 2);
    const char *name = r->at + 3;
    bool negative = *name == '^';
    size_t n = (size_t)(close - name) - negative;
    int err = copy(r, 3 + (size_t)negative);
    if (!err && n >= 3 && !(n == 3 && !memcmp(r->at, "Any", 3)))
        err = put(r, "sc:");
    return err ? err : copy(r, n + 1);
}

/* \xHH names a byte beyond 7F, and \uHHHH a character. */
static int number(struct reader *r)
{
    char digits[5] = {0};

    if (r->at[1] == 'u' && r->end - r->at >= 6) {
        memcpy(digits, r->at + 2, 4);
        int err = put(r, "\\x{");
        r->at += 6;
        err = err ? err : put(r, digits);
        return err ? err : put(r, "}");
    }
    if (r->end - r->at > 2 && r->at[1] == 'x' && r->at[2] >= '8' && r->at[2] != '{')
        return refuse(r, "a byte");
    return copy(r, 2);
}

/* The items of a class that an escape stands for; *negative: of its complement. */
static const char *class_items(char escape, bool *negative)
{
    *negative = escape == 'S' || escape == 'W' || escape == 'H';
    switch (escape) {
    case 's':
    case 'S':
        return SPACE;
    case 'w':
    case 'W':
        return WORD;
    case 'h':
    case 'H':
        return HEX;
    default:
        return NULL;
    }
}

static int class_escape(struct reader *r, const char *items, bool negative)
{
    if (r->in_class && negative && r->at[1] != 'S')
        return refuse(r, "a negated class inside of a class");
    bool not_space = r->in_class && negative;
    int err = r->in_class ? 0 : put(r, negative ? "[^" : "[");
    r->at += 2;
    err = err ? err : put(r, not_space ? NOT_SPACE : items);
    return err || r->in_class ? err : put(r, "]");
}

static int escape(struct reader *r)
{
    char c = r->end - r->at > 1 ? r->at[1] : '\0';
    bool negative;
    const char *items = class_items(c, &negative);

    if (items)
        return class_escape(r, items, negative);
    switch (c) {
    case 'p':
    case 'P':
        return property(r);
    case 'u':
    case 'x':
        return number(r);
    case 'v':
        r->at += 2;
        return put(r, "\\x0b");
    case 'Q':
    case 'E':
        return refuse(r, "an escape");
    case 'b':
    case 'B':
        if (r->in_class)
            return copy(r, 2);
        r->at += 2;
        return put(r, c == 'b' ? "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD
                                 "])(?=[" WORD "]))"
                               : "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD
                                 "])(?![" WORD "]))");
    default:
        return copy(r, 2);
    }
}

/* A bracket that closes at once is an item. */
static int class_start(struct reader *r)
{
    size_t n = looking_at(r, "[^") ? 2 : 1;

    r->in_class = true;
    return copy(r, looking_at(r, n == 2 ? "[^]" : "[]") ? n + 1 : n);
}

static int class_item(struct reader *r)
{
    if (*r->at == '\\')
        return escape(r);
    if (*r->at == '[')
        return refuse(r, r->end - r->at > 1 && r->at[1] == ':' ? "a POSIX class"
                                                               : "a class in a class");
    if (looking_at(r, "&&"))
        return refuse(r, "an intersection of classes");
    r->in_class = *r->at != ']';
    return copy(r, 1);
}

/* {n,m}: Oniguruma has {,m}, and a + behind it repeats it instead of making it
 * possessive. */
static int interval(struct reader *r)
{
    const char *at = r->at + 1;
    char *stop;
    unsigned long low = strtoul(at, &stop, 10);
    bool open_low = stop == at;

    if (*at < '0' ? *at != ',' : *at > '9')
        return copy(r, 1);
    at = stop;
    bool comma = *at == ',';
    at += comma;
    if (open_low && *at == '}')
        return copy(r, 1);
    while (at < r->end && *at >= '0' && *at <= '9')
        at++;
    if (at >= r->end || *at != '}')
        return copy(r, 1);
    size_t n = (size_t)(at + 1 - r->at);
    if (at + 1 < r->end && at[1] == '+') {
        if (low > 1 || !comma)
            return refuse(r, "a repeated interval");
        r->at += n + 1;
        return put(r, low ? "+" : "*");
    }
    if (!open_low)
        return copy(r, n);
    r->at++;
    int err = put(r, "{0");
    return err ? err : copy(r, n - 1);
}

/* What follows an opening parenthesis. */
static int group(struct reader *r)
{
    const char *at = r->at + 2;

    if (looking_at(r, "(*"))
        return refuse(r, "a verb");
    if (!looking_at(r, "(?"))
        return copy(r, 1);
    if (looking_at(r, "(?#"))
        return refuse(r, "a comment");
    for (; at < r->end && strchr("imxsaduWDSPyg-", *at) && *at; at++)
        if (*at != 'i' && *at != '-')
            return refuse(r, "an option");
    return copy(r, (size_t)(at - r->at));
}

int pattern_translate(struct text *out, const char *regex, size_t len, const char *name)
{
    struct reader r = {.at = regex, .end = regex + len, .name = name, .out = out};
    int err = 0;

    while (r.at < r.end && !err) {
        if (r.in_class)
            err = class_item(&r);
        else if (*r.at == '\\')
            err = escape(&r);
        else if (*r.at == '[')
            err = class_start(&r);
        else if (*r.at == '{')
            err = interval(&r);
        else if (*r.at == '(')
            err = group(&r);
        else
            err = copy(&r, 1);
    }
    return err;
}
