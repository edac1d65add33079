/* Runs of bytes that grow, and UTF-8. */
#ifndef PENSTOCK_UTF8_H
#define PENSTOCK_UTF8_H

#include "kernels/base.h"

struct text {
    char *data; /* (len), room for cap; not terminated */
    size_t len, cap;
};

/* Appends; -ENOMEM and one line. */
int text_add(struct text *t, const char *data, size_t len);
/* Room for `more` bytes beyond len, of `size` bytes each, in any array kept like a text.
 * -ENOMEM and one line. */
int text_room(void **data, size_t *cap, size_t len, size_t more, size_t size);
void text_fini(struct text *t);

/* The first code point of (len) bytes and its length; 0 if they do not start with a valid
 * one. */
size_t utf8_next(uint32_t *code, const char *s, size_t len);
/* Bytes of the longest prefix that is valid. */
size_t utf8_prefix(const char *s, size_t len);
/* Whether the bytes are the beginning of a valid code point, or a whole one. */
bool utf8_begins(const char *s, size_t len);
size_t utf8_put(char out[4], uint32_t code);
/* Start of the code point that ends at `end`, in valid UTF-8; end > 0. */
size_t utf8_back(const char *s, size_t end);

/* White_Space, and the word characters of UTS 18 (letters, marks, digits, connectors). */
bool code_is_space(uint32_t code);
bool code_is_word(uint32_t code);
/* White space for Python's strip(): White_Space and the four separators U+001C to
 * U+001F. */
bool code_is_blank(uint32_t code);

#endif
