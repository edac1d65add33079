/* Checkpoints by name: found, begun under a hidden name, completed by a rename, removed when newer ones are there. */
#include "stages/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/doc.h"
#include "stages/file.h"
#include "stages/output.h"

#define STATE  "training.json"
#define PREFIX "checkpoint-"
#define HIDDEN "." PREFIX /* begun and not complete, or being removed */

static int dir_error(const char *path, int err)
{
    log_error("%s: %s", path, strerror(err));
    return -err;
}

/* Whether two names, which may be NULL, are of one file. */
static bool is_same(const char *a, const char *b)
{
    struct stat s, t;
    return a && b && !stat(a, &s) && !stat(b, &t) && s.st_dev == t.st_dev &&
           s.st_ino == t.st_ino;
}

/* ---- State ------------------------------------------------------------------------------------- */

static int read_hex(uint64_t *out, const json_t *o, const char *key, const char *path)
{
    const char *text = NULL;
    int n = 0, err = doc_string(&text, o, key, path);

    if (err)
        return err;
    if (text && sscanf(text, "%16" SCNx64 "%n", out, &n) == 1 && !text[n])
        return 0;
    log_error("%s: \"%s\" is not a hexadecimal number", path, key);
    return -EINVAL;
}

int checkpoint_state_read(struct checkpoint_state *s, const char *path)
{
    json_t *o;
    char *file;
    size_t version = 0, step = 0, sequences = 0;
    int err = file_join(&file, path, STATE);

    if (err)
        return err;
    err = doc_open(&o, file);
    if (!err)
        err = doc_size(&version, o, "version", 1, 1, file);
    if (!err)
        err = doc_size(&step, o, "step", 0, LONG_MAX, file);
    if (!err)
        err = doc_size(&sequences, o, "sequences", 0, INT64_MAX, file);
    if (!err)
        err = read_hex(&s->fingerprint, o, "data", file);
    if (!err)
        err = read_hex(&s->seed, o, "seed", file);
    if (!err && !version) {
        log_error("%s: it has no version", file);
        err = -EINVAL;
    }
    s->step = (long)step;
    s->sequences = sequences;
    json_decref(o);
    free(file);
    return err;
}

static int print_state(const struct checkpoint_state *s, FILE *f)
{
    return fprintf(f,
                   "{\n  \"version\": 1,\n  \"step\": %ld,\n  \"sequences\": %" PRIu64
                   ",\n  \"data\": \"%016" PRIx64 "\",\n  \"seed\": \"%016" PRIx64
                   "\"\n}\n",
                   s->step, s->sequences, s->fingerprint, s->seed) < 0
               ? -EIO
               : 0;
}

int checkpoint_state_write(const struct checkpoint_state *s, const char *path)
{
    struct output o;
    char *file;
    int err = file_join(&file, path, STATE);

    if (err)
        return err;
    err = output_open(&o, file);
    if (!err)
        err = output_close(&o, print_state(s, o.f));
    free(file);
    return err;
}

/* ---- Names ------------------------------------------------------------------------------------- */

/* The step in a name like checkpoint-20; -1: it is no such name. */
static long step_of(const char *name)
{
    char *end;
    size_t n = strlen(PREFIX);

    if (strncmp(name, PREFIX, n) || name[n] < '0' || name[n] > '9')
        return -1;
    errno = 0;
    long step = strtol(name + n, &end, 10);
    return *end || errno ? -1 : step;
}

char *checkpoint_path(const char *dir, long step)
{
    char name[64], *path = NULL;

    snprintf(name, sizeof(name), PREFIX "%ld", step);
    return file_join(&path, dir, name) ? NULL : path;
}

/* The newest checkpoint before `below`; -1: none. -errno after a line. */
static int newest(long *step, const char *path, long below)
{
    DIR *d = opendir(path);

    *step = -1;
    if (!d)
        return dir_error(path, errno);
    for (struct dirent *e; (e = readdir(d));) {
        long s = step_of(e->d_name);
        if (s < below && s > *step)
            *step = s;
    }
    closedir(d);
    return 0;
}

static bool has_state(const char *path)
{
    char *file;
    bool has = !file_join(&file, path, STATE);

    if (has) {
        has = !access(file, F_OK);
        free(file);
    }
    return has;
}

int checkpoint_find(char **path, const char *name)
{
    long step = -1;
    int err = 0;

    if (has_state(name)) {
        *path = strdup(name);
        return *path ? 0 : log_no_memory(name);
    }
    err = newest(&step, name, LONG_MAX);
    if (!err && step < 0) {
        log_error("%s: there is no checkpoint to resume from", name);
        err = -ENOENT;
    }
    if (!err && !(*path = checkpoint_path(name, step)))
        err = -ENOMEM;
    return err;
}

/* ---- The folder --------------------------------------------------------------------------------- */

/* Removes a folder of plain files. */
static int remove_folder(const char *path)
{
    DIR *d = opendir(path);
    int err = d ? 0 : errno;

    for (struct dirent *e; d && !err && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            unlinkat(dirfd(d), e->d_name, 0))
            err = errno;
    if (d)
        closedir(d);
    if (!err && rmdir(path))
        err = errno;
    if (err)
        log_warn("%s: it cannot be removed: %s", path, strerror(err));
    return -err;
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 || fsync(fd) ? errno : 0;

    if (fd >= 0)
        close(fd);
    return err ? dir_error(path, err) : 0;
}

/* What a run that was killed was about to complete or to remove. */
static int remove_leftovers(const char *path)
{
    DIR *d = opendir(path);

    if (!d)
        return dir_error(path, errno);
    for (struct dirent *e; (e = readdir(d));) {
        char *left;
        if (strncmp(e->d_name, HIDDEN, strlen(HIDDEN)) ||
            file_join(&left, path, e->d_name))
            continue;
        remove_folder(left);
        free(left);
    }
    closedir(d);
    return 0;
}

static int make(struct checkpoint_dir *d)
{
    d->made = !mkdir(d->path, 0777);
    return d->made || errno == EEXIST ? 0 : dir_error(d->path, errno);
}

static int lock(struct checkpoint_dir *d)
{
    d->lock = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->lock < 0)
        return dir_error(d->path, errno);
    if (!flock(d->lock, LOCK_EX | LOCK_NB))
        return 0;
    if (errno != EWOULDBLOCK)
        return dir_error(d->path, errno);
    log_error("%s: another run saves its checkpoints there: give another folder",
              d->path);
    return -EBUSY;
}

/* Whether the checkpoint `from` lies in the folder. */
static bool is_own(const struct checkpoint_dir *d, const char *from)
{
    char *parent;
    bool own = false;

    if (from && !file_join(&parent, from, "..")) {
        own = is_same(d->path, parent);
        free(parent);
    }
    return own;
}

/* The folder may have checkpoints, but none that this run would mix with its own. */
static int check_mixed(const struct checkpoint_dir *d, const char *from, long step)
{
    long last;
    bool own = is_own(d, from);
    int err = newest(&last, d->path, LONG_MAX);

    if (err || last < 0 || (own && last <= step))
        return err;
    if (!own)
        log_error("%s: it has checkpoints of another run: --resume %s goes on with the "
                  "newest, or give another folder",
                  d->path, d->path);
    else
        log_error("%s: its " PREFIX "%ld is later than step %ld to resume from: give "
                  "another folder, or remove what is later",
                  d->path, last, step);
    return -EEXIST;
}

int checkpoint_dir_open(struct checkpoint_dir *d, const char *path, int keep,
                        const char *from, long step)
{
    *d = (struct checkpoint_dir){.path = strdup(path),
                                 .source = from ? strdup(from) : NULL,
                                 .lock = -1,
                                 .keep = keep};
    int err = d->path && (!from || d->source) ? 0 : log_no_memory(path);

    if (!err)
        err = make(d);
    if (!err)
        err = lock(d);
    if (!err && access(path, W_OK))
        err = dir_error(path, errno);
    if (!err)
        err = check_mixed(d, from, step);
    if (!err)
        err = remove_leftovers(path);
    if (err)
        checkpoint_dir_close(d);
    return err;
}

void checkpoint_dir_close(struct checkpoint_dir *d)
{
    if (d->made)
        rmdir(d->path);
    if (d->path && d->lock >= 0)
        close(d->lock);
    free(d->path);
    free(d->source);
    *d = (struct checkpoint_dir){.lock = -1};
}

static char *hidden_path(const struct checkpoint_dir *d, long step, const char *what)
{
    char name[80], *path = NULL;

    snprintf(name, sizeof(name), HIDDEN "%ld.%s", step, what);
    return file_join(&path, d->path, name) ? NULL : path;
}

int checkpoint_begin(const struct checkpoint_dir *d, char **path, long step)
{
    if (!(*path = hidden_path(d, step, "new")))
        return -ENOMEM;
    if (!mkdir(*path, 0777))
        return 0;
    int err = dir_error(*path, errno);
    free(*path);
    *path = NULL;
    return err;
}

/* Hides a checkpoint first, so that what is half removed is none. */
static void remove_checkpoint(const struct checkpoint_dir *d, long step)
{
    char *path = checkpoint_path(d->path, step), *old = hidden_path(d, step, "old");

    if (path && old && !is_same(d->source, path) && !rename(path, old))
        remove_folder(old);
    free(path);
    free(old);
}

static void prune(const struct checkpoint_dir *d)
{
    long step, below = LONG_MAX;

    for (int i = 0; !newest(&step, d->path, below) && step >= 0; i++, below = step)
        if (i >= d->keep)
            remove_checkpoint(d, step);
}

int checkpoint_end(const struct checkpoint_dir *d, char *path, long step, int err)
{
    char *name = checkpoint_path(d->path, step);

    if (!err && !name)
        err = -ENOMEM;
    if (!err)
        err = sync_folder(path);
    if (!err && rename(path, name))
        err = dir_error(name, errno);
    if (err)
        remove_folder(path);
    else
        err = sync_folder(d->path);
    if (!err)
        prune(d);
    free(name);
    free(path);
    return err;
}
