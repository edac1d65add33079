/* Reads and writes whole files. */
#include "cli/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/error.h"
#include "runtime/penstock.h"

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

int write_file(const char *path, int (*write)(FILE *f, void *arg), void *arg)
{
    return penstock_write(path, write, arg);
}

int check_output(const char *path)
{
    return path ? penstock_can_write(path) : 0;
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
