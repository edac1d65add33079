/* Mapping of files, and their text in messages. */
#include "stages/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_open(struct file_map *map, int fd, const char *path)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        int err = -errno;
        log_error("%s: %s", path, strerror(-err));
        return err;
    }
    if (!S_ISREG(st.st_mode)) {
        log_error("%s: not a regular file", path);
        return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
    }
    if (st.st_size <= 0) {
        log_error("%s: the file is empty", path);
        return -EINVAL;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        int err = -errno;
        log_error("%s: cannot be mapped: %s", path, strerror(-err));
        return err;
    }
    map->data = data;
    map->bytes = (size_t)st.st_size;
    return 0;
}

int file_map(struct file_map *map, const char *path)
{
    /* Without O_NONBLOCK a FIFO would wait here for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int err = -errno;
        log_error("%s: %s", path, strerror(-err));
        return err;
    }
    int err = map_open(map, fd, path);
    close(fd);
    return err;
}

void file_unmap(struct file_map *map)
{
    if (map->data)
        munmap((void *)map->data, map->bytes);
    *map = (struct file_map){0};
}

int file_join(char **path, const char *dir, const char *name)
{
    size_t n = strlen(dir) + strlen(name) + 2;

    *path = malloc(n);
    if (!*path)
        return file_no_memory(dir);
    snprintf(*path, n, "%s/%s", dir, name);
    return 0;
}

const char *file_text(char *buf, size_t size, const char *data, size_t len)
{
    size_t n = len < size - 1 ? len : size - 1;

    for (size_t i = 0; i < n; i++)
        buf[i] = data[i] >= ' ' && data[i] <= '~' ? data[i] : '?';
    buf[n] = '\0';
    return buf;
}

int file_no_memory(const char *name)
{
    log_error("%s: out of memory", name);
    return -ENOMEM;
}
