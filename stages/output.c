/* Output files: where a name leads, and a temporary name until the file is whole. */
#include "stages/output.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "kernels/base.h"

#define MOST_LINKS 40
#define PROC_MAGIC 0x9fa0 /* statfs(2) */

static int output_error(const char *path, int err)
{
    if (*path)
        log_error("%s: %s", path, strerror(-err));
    else
        log_error("an output file has the empty name: give it another");
    return err;
}

/* ---- Where a name leads ----------------------------------------------------------------------- */

/* Bytes of the folder's name in path, its slash included. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* Whether the link is the kernel's name for an open file: what it says need not be a path. */
static bool is_descriptor(const char *link)
{
    struct statfs s;
    char *folder = strndup(link, folder_length(link));
    bool is = folder && *folder && !statfs(folder, &s) && s.f_type == PROC_MAGIC;

    free(folder);
    return is;
}

/* The name that a link gives, seen from where the link is. */
static char *join(const char *link, const char *name)
{
    size_t folder = *name == '/' ? 0 : folder_length(link);
    char *path = malloc(folder + strlen(name) + 1);

    if (path) {
        memcpy(path, link, folder);
        strcpy(path + folder, name);
    }
    return path;
}

/* Follows links to a file, which need not exist, or to a descriptor's name. */
static int follow(char **target, bool *descriptor, const char *path)
{
    char name[PATH_MAX];
    char *at = strdup(path);

    *descriptor = false;
    for (int i = 0; at && i < MOST_LINKS; i++) {
        ssize_t n = readlink(at, name, sizeof(name) - 1);
        *descriptor = n >= 0 && is_descriptor(at);
        if (n < 0 || *descriptor) {
            *target = at;
            return 0;
        }
        name[n] = '\0';
        char *next = join(at, name);
        free(at);
        at = next;
    }
    int err = at ? -ELOOP : -ENOMEM;
    free(at);
    return err;
}

/* The number of this process's descriptor that the name stands for; -1: none. */
static int own_descriptor(const char *name, const struct stat *s)
{
    const char *digits = name + folder_length(name);
    struct stat own;
    char *end;
    long fd = isdigit((unsigned char)*digits) ? strtol(digits, &end, 10) : -1;

    if (fd < 0 || fd > INT_MAX || *end || fstat((int)fd, &own))
        return -1;
    return own.st_dev == s->st_dev && own.st_ino == s->st_ino ? (int)fd : -1;
}

/* ---- Open and close --------------------------------------------------------------------------- */

/* A descriptor shares its place in the file, so that output follows what is there and what comes. */
static int open_in_place(struct output *o, int fd)
{
    if (fd < 0) {
        o->f = fopen(o->target, "wb");
        return o->f ? 0 : -errno;
    }
    fflush(stdout);
    int copy = dup(fd);
    o->f = copy < 0 ? NULL : fdopen(copy, "wb");
    int err = o->f ? 0 : -errno;
    if (!o->f && copy >= 0)
        close(copy);
    return err;
}

/* old: the file that will be replaced, or NULL. */
static int open_temporary(struct output *o, const struct stat *old)
{
    size_t size = strlen(o->target) + 32;
    mode_t mode = old ? old->st_mode & 0777 : 0666;

    if (old && access(o->target, W_OK))
        return -errno;
    if (!(o->temporary = malloc(size)))
        return -ENOMEM;
    snprintf(o->temporary, size, "%s.%ld.tmp", o->target, (long)getpid());
    int fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return -errno;
    o->f = fdopen(fd, "wb");
    int err = o->f && (!old || !fchmod(fd, mode)) ? 0 : -errno;
    if (err)
        unlink(o->temporary);
    if (!o->f)
        close(fd);
    return err;
}

/* probe: only what changes nothing and does not wait. */
static int begin(struct output *o, bool probe)
{
    struct stat s;
    bool descriptor;
    int err = *o->path ? follow(&o->target, &descriptor, o->path) : -EINVAL;

    if (err)
        return err;
    bool exists = !stat(o->target, &s);
    if (!exists && errno != ENOENT)
        return -errno;
    if (!exists || (S_ISREG(s.st_mode) && !descriptor))
        return open_temporary(o, exists ? &s : NULL);
    int fd = descriptor ? own_descriptor(o->target, &s) : -1;
    if (S_ISDIR(s.st_mode))
        return -EISDIR;
    if (probe && fd < 0)
        return access(o->target, W_OK) ? -errno : 0;
    return open_in_place(o, fd);
}

static int end(struct output *o, int err)
{
    if (!err && (fflush(o->f) || (o->temporary && fsync(fileno(o->f)))))
        err = -errno;
    if (o->f && fclose(o->f) && !err)
        err = -errno;
    if (!err && o->temporary && rename(o->temporary, o->target))
        err = -errno;
    if (err && o->f && o->temporary)
        unlink(o->temporary);
    free(o->temporary);
    free(o->target);
    return err;
}

int output_open(struct output *o, const char *path)
{
    *o = (struct output){.path = path};
    int err = begin(o, false);
    if (err)
        end(o, err);
    return err ? output_error(path, err) : 0;
}

int output_close(struct output *o, int err)
{
    err = end(o, err);
    return err ? output_error(o->path, err) : 0;
}

void output_drop(struct output *o)
{
    end(o, -ECANCELED);
}

int output_check(const char *path)
{
    struct output o = {.path = path};
    int err = begin(&o, true);
    end(&o, err ? err : -ECANCELED);
    return err ? output_error(path, err) : 0;
}
