/* Runs of bytes that grow, and UTF-8. */
#include "stages/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

int text_room(void **data, size_t *cap, size_t len, size_t more, size_t size)
{
    size_t want, bytes;

    if (more <= *cap - len)
        return 0;
    if (!size_add(&want, len, more) && !size_add(&want, want, want / 2 + 64) &&
        !size_mul(&bytes, want, size)) {
        void *grown = realloc(*data, bytes);
        if (grown) {
            *data = grown;
            *cap = want;
            return 0;
        }
    }
    log_error("tokenizer: out of memory");
    return -ENOMEM;
}

int text_add(struct text *t, const char *data, size_t len)
{
    int err = text_room((void **)&t->data, &t->cap, t->len, len, 1);
    if (!err && len)
        memcpy(t->data + t->len, data, len);
    t->len += err ? 0 : len;
    return err;
}

void text_fini(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}

/* Length of a code point by its first byte; 0 for a byte that starts none. */
static size_t lead_length(uint8_t lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Whether byte i may follow: the second byte excludes overlong forms, surrogates, and
 * what is beyond U+10FFFF. */
static bool follows(uint8_t lead, size_t i, uint8_t byte)
{
    uint8_t low = 0x80, high = 0xbf;

    if (i == 1) {
        low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : low;
        high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : high;
    }
    return byte >= low && byte <= high;
}

bool utf8_begins(const char *s, size_t len)
{
    const uint8_t *p = (const uint8_t *)s;

    if (!len || len > lead_length(p[0]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (!follows(p[0], i, p[i]))
            return false;
    return true;
}

size_t utf8_next(uint32_t *code, const char *s, size_t len)
{
    const uint8_t *p = (const uint8_t *)s;
    size_t n = len ? lead_length(p[0]) : 0;

    if (!n || n > len || !utf8_begins(s, n))
        return 0;
    uint32_t c = n == 1 ? p[0] : p[0] & (0x7f >> n);
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    *code = c;
    return n;
}

size_t utf8_prefix(const char *s, size_t len)
{
    size_t at = 0, n;
    uint32_t code;

    while (at < len && (n = utf8_next(&code, s + at, len - at)))
        at += n;
    return at;
}

size_t utf8_put(char out[4], uint32_t code)
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

size_t utf8_back(const char *s, size_t end)
{
    do
        end--;
    while (end && ((uint8_t)s[end] & 0xc0) == 0x80);
    return end;
}

bool code_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool code_is_blank(uint32_t c)
{
    return code_is_space(c) || (c >= 0x1c && c <= 0x1f);
}

/* Circled and squared Latin letters: symbols by category, letters by property. */
static bool is_enclosed_letter(uint32_t c)
{
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool code_is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200c || c == 0x200d || is_enclosed_letter(c);
    }
}
