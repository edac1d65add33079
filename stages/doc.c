/* JSON documents. */
#include "stages/doc.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "stages/file.h"

int doc_parse(json_t **out, const char *text, size_t len, const char *name)
{
    json_error_t error;
    char why[256];

    *out = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!*out) {
        file_text(why, sizeof(why), error.text, strnlen(error.text, sizeof(error.text)));
        log_error("%s: not valid JSON, line %d: %s", name, error.line, why);
        return -EINVAL;
    }
    if (json_is_object(*out))
        return 0;
    log_error("%s: a JSON object was expected", name);
    json_decref(*out);
    *out = NULL;
    return -EINVAL;
}

int doc_open(json_t **out, const char *path)
{
    struct file_map map;

    *out = NULL;
    int err = file_map(&map, path);
    if (err)
        return err;
    err = doc_parse(out, (const char *)map.data, map.bytes, path);
    file_unmap(&map);
    return err;
}

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static int wrong_type(const char *name, const char *key, const char *type)
{
    log_error("%s: \"%s\" is not %s", name, key, type);
    return -EINVAL;
}

int doc_size(size_t *out, const json_t *object, const char *key, size_t min, size_t max,
             const char *name)
{
    const json_t *value = member(object, key);

    if (!value)
        return 0;
    if (!json_is_integer(value))
        return wrong_type(name, key, "an integer");
    json_int_t n = json_integer_value(value);
    if (n < 0 || (size_t)n < min || (size_t)n > max) {
        log_error("%s: \"%s\" is %lld, but must lie in %zu .. %zu", name, key,
                  (long long)n, min, max);
        return -EINVAL;
    }
    *out = (size_t)n;
    return 0;
}

int doc_number(double *out, const json_t *object, const char *key, const char *name)
{
    const json_t *value = member(object, key);

    if (!value)
        return 0;
    if (!json_is_number(value) || !isfinite(json_number_value(value)))
        return wrong_type(name, key, "a number");
    *out = json_number_value(value);
    return 0;
}

int doc_flag(bool *out, const json_t *object, const char *key, const char *name)
{
    const json_t *value = member(object, key);

    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return wrong_type(name, key, "true or false");
    *out = json_is_true(value);
    return 0;
}

int doc_string(const char **out, const json_t *object, const char *key, const char *name)
{
    const json_t *value = member(object, key);

    if (!value)
        return 0;
    if (!json_is_string(value))
        return wrong_type(name, key, "a string");
    *out = json_string_value(value);
    return 0;
}
