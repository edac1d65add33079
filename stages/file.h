/* Files mapped read-only, and text from files made safe to print. */
#ifndef PENSTOCK_FILE_H
#define PENSTOCK_FILE_H

#include "kernels/base.h"

struct file_map {
    const uint8_t *data; /* (bytes) */
    size_t bytes;
};

/* Maps a regular file that is not empty. -errno, or -EINVAL for what is no such file; one
 * line. */
int file_map(struct file_map *map, const char *path);
void file_unmap(struct file_map *map);

/* *path = dir/name, freed by the caller. -ENOMEM. */
int file_join(char **path, const char *dir, const char *name);

/* Copies (len) bytes of a file into buf for a message: terminated, cut to size, and
 * whatever is not printable ASCII becomes '?'. Returns buf. */
const char *file_text(char *buf, size_t size, const char *data, size_t len);

/* Says that memory ran out while reading `name`; returns -ENOMEM. */
int file_no_memory(const char *name);

#endif
