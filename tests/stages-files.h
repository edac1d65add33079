/* Files for tests of stages/: a folder that is removed again, small models written into
 * it, and what the code under test says on stderr. */
#ifndef PENSTOCK_STAGES_FILES_H
#define PENSTOCK_STAGES_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"

static char files_dir[64];

static inline void files_create(void)
{
    strcpy(files_dir, "/tmp/penstock-test-XXXXXX");
    assert_non_null(mkdtemp(files_dir));
}

static inline int files_unlink(const char *path, const struct stat *st, int flag,
                               struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static inline void files_remove(void)
{
    nftw(files_dir, files_unlink, 8, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the folder; the last eight stay valid. */
static inline const char *files_path(const char *name)
{
    static char paths[8][4096];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof(paths[0]), "%s/%s", files_dir, name);
    return path;
}

static inline void files_write(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(files_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* What is written to stderr between the two calls; a heap copy, terminated. */
struct capture {
    int saved, fd;
};

static inline struct capture capture_begin(void)
{
    struct capture c = {.saved = dup(2), .fd = memfd_create("stderr", 0)};
    fflush(stderr);
    dup2(c.fd, 2);
    return c;
}

static inline char *capture_end(struct capture c)
{
    fflush(stderr);
    dup2(c.saved, 2);
    close(c.saved);
    off_t n = lseek(c.fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)n + 1);
    assert_int_equal(pread(c.fd, text, (size_t)n, 0), n);
    close(c.fd);
    return text;
}

static inline bool capture_is_one_line(const char *text)
{
    const char *end = strchr(text, '\n');
    return end && !end[1] && !strncmp(text, "penstock: error: ", 17);
}

/* A growing run of bytes. */
struct bytes {
    uint8_t *data;
    size_t n;
};

static inline void bytes_put(struct bytes *b, const void *data, size_t n)
{
    b->data = realloc(b->data, b->n + n + 1);
    assert_non_null(b->data);
    if (n)
        memcpy(b->data + b->n, data, n);
    b->n += n;
}

static inline void bytes_zero(struct bytes *b, size_t n)
{
    void *zeros = calloc(1, n + 1);
    bytes_put(b, zeros, n);
    free(zeros);
}

static inline void bytes_int(struct bytes *b, uint64_t value, size_t n)
{
    bytes_put(b, &value, n); /* little-endian */
}

/* GGUF: strings, keys with one value of `n` bytes, directory entries. */
static inline void gguf_put_string(struct bytes *b, const char *text)
{
    bytes_int(b, strlen(text), 8);
    bytes_put(b, text, strlen(text));
}

static inline void gguf_put_key(struct bytes *b, const char *key, uint32_t type)
{
    gguf_put_string(b, key);
    bytes_int(b, type, 4);
}

static inline void gguf_put_int(struct bytes *b, const char *key, uint32_t type,
                                uint64_t value, size_t n)
{
    gguf_put_key(b, key, type);
    bytes_int(b, value, n);
}

static inline void gguf_put_float(struct bytes *b, const char *key, float value)
{
    gguf_put_key(b, key, 6);
    bytes_put(b, &value, 4);
}

static inline void gguf_put_tensor(struct bytes *b, const char *name, uint32_t type,
                                   uint64_t offset, int n_dims, const uint64_t *dims)
{
    gguf_put_string(b, name);
    bytes_int(b, (uint64_t)n_dims, 4);
    for (int i = 0; i < n_dims; i++)
        bytes_int(b, dims[i], 8);
    bytes_int(b, type, 4);
    bytes_int(b, offset, 8);
}

#endif
