/* Reads and writes whole files. */
#include "cli/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/error.h"

static int file_error(const char *path, int err)
{
    cli_error("%s: %s", path, strerror(err));
    return -err;
}

/* Reads f to its end. -errno. */
static int read_all(char **text, size_t *len, FILE *f)
{
    size_t cap = 1 << 16, n = 0;
    char *buffer = malloc(cap + 1);

    errno = 0;
    while (buffer) {
        n += fread(buffer + n, 1, cap - n, f);
        if (n < cap)
            break;
        char *more = realloc(buffer, 2 * cap + 1);
        if (!more)
            free(buffer);
        buffer = more;
        cap *= 2;
    }
    if (!buffer || ferror(f)) {
        int err = !buffer ? ENOMEM : errno ? errno : EIO;
        free(buffer);
        return -err;
    }
    buffer[n] = '\0';
    *text = buffer;
    *len = n;
    return 0;
}

int read_file(char **text, size_t *len, const char *path)
{
    bool standard = !strcmp(path, "-");
    FILE *f = standard ? stdin : fopen(path, "rb");
    if (!f)
        return file_error(path, errno);
    int err = read_all(text, len, f);
    if (!standard)
        fclose(f);
    return err ? file_error(standard ? "standard input" : path, -err) : 0;
}

/* A file that is being written. */
struct output {
    FILE *f;
    char *target;    /* what the path names, links followed */
    char *temporary; /* NULL: the target itself is written */
};

static int output_open(struct output *o, const char *path)
{
    struct stat s;
    bool exists = !stat(path, &s);

    *o = (struct output){.target = exists ? realpath(path, NULL) : strdup(path)};
    if (!o->target)
        return -errno;
    if (exists && !S_ISREG(s.st_mode)) {
        o->f = fopen(o->target, "wb");
    } else if (exists && access(o->target, W_OK)) {
        return -errno;
    } else {
        size_t size = strlen(o->target) + 32;
        if (!(o->temporary = malloc(size)))
            return -ENOMEM;
        snprintf(o->temporary, size, "%s.%ld.tmp", o->target, (long)getpid());
        o->f = fopen(o->temporary, "wbx");
    }
    return o->f ? 0 : -errno;
}

/* err: what went wrong so far; without error the file takes its name. */
static int output_close(struct output *o, int err)
{
    if (!err && o->f && (fflush(o->f) || (o->temporary && fsync(fileno(o->f)))))
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

int write_file(const char *path, int (*write)(FILE *f, void *arg), void *arg)
{
    struct output o;
    int err = output_open(&o, path);

    errno = 0;
    if (!err && write(o.f, arg))
        err = errno ? -errno : -EIO;
    err = output_close(&o, err);
    return err ? file_error(path, -err) : 0;
}

int check_output(const char *path)
{
    struct output o;
    struct stat s;

    if (!path || (!stat(path, &s) && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode)))
        return 0; /* opening a pipe may wait */
    int err = output_open(&o, path);
    output_close(&o, err ? err : -ECANCELED);
    return err ? file_error(path, -err) : 0;
}

int close_stdout(void)
{
    int err = fflush(stdout) ? errno : ferror(stdout) ? EIO : 0;
    return err ? file_error("standard output", err) : 0;
}

void keep_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            _exit(1);
}
