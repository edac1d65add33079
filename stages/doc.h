/* JSON documents: parsing, and typed reads of an object's members. */
#ifndef PENSTOCK_DOC_H
#define PENSTOCK_DOC_H

#include <jansson.h>

#include "kernels/base.h"

/* Parses text whose top is an object, without duplicate keys. -EINVAL and one line.
 * `name` is for messages. *out is released with json_decref. */
int doc_parse(json_t **out, const char *text, size_t len, const char *name);

/* The same from a file; -errno and one line if it cannot be read. */
int doc_open(json_t **out, const char *path);

/* Member `key` of an object. Absent or null: *out stays as it is. Another type, or a
 * number that is out of range: -EINVAL and one line. doc_size: an integer in [min, max].
 * doc_string is borrowed. */
int doc_size(size_t *out, const json_t *object, const char *key, size_t min, size_t max,
             const char *name);
int doc_number(double *out, const json_t *object, const char *key, const char *name);
int doc_flag(bool *out, const json_t *object, const char *key, const char *name);
int doc_string(const char **out, const json_t *object, const char *key, const char *name);

#endif
