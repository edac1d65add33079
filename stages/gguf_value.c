/* Typed reads of GGUF metadata. The values were checked to lie within the file; they may
 * be unaligned. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/gguf.h"

/* Bytes of the integer types; negative: signed. */
static const int8_t int_bytes[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = -1,  [GGUF_U16] = 2, [GGUF_I16] = -2,
    [GGUF_U32] = 4, [GGUF_I32] = -4, [GGUF_U64] = 8, [GGUF_I64] = -8,
};

int gguf_int(int64_t *out, const struct gguf_kv *kv, size_t i)
{
    bool is_signed = int_bytes[kv->type] < 0;
    size_t n = (size_t)abs(int_bytes[kv->type]);
    uint64_t bits = 0;

    if (!n || i >= kv->count)
        return -EINVAL;
    memcpy(&bits, kv->data + i * n, n);
    if (is_signed && n < sizeof(bits) && bits >> (8 * n - 1))
        bits |= UINT64_MAX << (8 * n);
    if (!is_signed && bits > INT64_MAX)
        return -EINVAL;
    *out = (int64_t)bits;
    return 0;
}

int gguf_float(double *out, const struct gguf_kv *kv, size_t i)
{
    int64_t whole;
    float single;

    if (i >= kv->count)
        return -EINVAL;
    if (kv->type == GGUF_F32) {
        memcpy(&single, kv->data + i * sizeof(single), sizeof(single));
        *out = (double)single;
        return 0;
    }
    if (kv->type == GGUF_F64) {
        memcpy(out, kv->data + i * sizeof(*out), sizeof(*out));
        return 0;
    }
    if (gguf_int(&whole, kv, i) < 0)
        return -EINVAL;
    *out = (double)whole;
    return 0;
}

int gguf_bool(bool *out, const struct gguf_kv *kv)
{
    if (kv->array || kv->type != GGUF_BOOL || kv->data[0] > 1)
        return -EINVAL;
    *out = kv->data[0] == 1;
    return 0;
}

/* The string at p, and where the next one starts. */
static const uint8_t *string_at(struct gguf_str *out, const uint8_t *p)
{
    uint64_t len;

    memcpy(&len, p, sizeof(len));
    *out = (struct gguf_str){(const char *)p + sizeof(len), len};
    return p + sizeof(len) + len;
}

int gguf_string(struct gguf_str *out, const struct gguf_kv *kv)
{
    if (kv->array || kv->type != GGUF_STRING)
        return -EINVAL;
    string_at(out, kv->data);
    return 0;
}

int gguf_strings(struct gguf_str **out, const struct gguf_kv *kv)
{
    if (!kv->array || kv->type != GGUF_STRING)
        return -EINVAL;
    *out = calloc(kv->count + 1, sizeof(**out));
    if (!*out)
        return -ENOMEM;
    const uint8_t *p = kv->data;
    for (size_t i = 0; i < kv->count; i++)
        p = string_at(&(*out)[i], p);
    return 0;
}
