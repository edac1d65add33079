/* The log of a training run: a file that is touched when its first line is there. */
#include "cli/train_log.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/error.h"

static int fail(struct train_log *l, int err)
{
    if (!l->failed) {
        progress_clear(l->progress);
        cli_error("--log %s: %s", l->name, strerror(err));
    }
    l->failed = true;
    return -err;
}

bool train_log_is_stdout(const struct train_log *l)
{
    return l->name && !strcmp(l->name, "-");
}

/* ---- Before the run ---------------------------------------------------------------------------- */

/* The folder of a path, in PATH_MAX bytes that hold the path. */
static void cut_name(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash)
        strcpy(path, ".");
    else
        slash[slash == path] = '\0';
}

/* Whether the file is one of a Hugging Face folder, a checkpoint among them. */
static bool is_of_model(const char *name)
{
    char path[PATH_MAX + 16];

    if (!realpath(name, path))
        return false;
    cut_name(path);
    strcat(path, "/config.json");
    return !access(path, F_OK);
}

static int check_input(const char *name, const struct stat *log, const char *input)
{
    struct stat s;

    if (!input || stat(input, &s) || s.st_dev != log->st_dev || s.st_ino != log->st_ino)
        return 0;
    return cli_error("--log %s: the run reads this file: give another", name);
}

/* A file that is still to be made: can it be? */
static int check_folder(const char *name)
{
    char path[PATH_MAX];

    if (strlen(name) >= sizeof(path))
        return cli_error("--log %s: %s", name, strerror(ENAMETOOLONG));
    strcpy(path, name);
    cut_name(path);
    if (!*name || access(path, W_OK | X_OK))
        return cli_error("--log %s: %s", name, strerror(*name ? errno : ENOENT));
    return 0;
}

int train_log_check(const struct train_log *l, const char *const *inputs, size_t n)
{
    struct stat s;
    int err = 0;

    if (!l->name || train_log_is_stdout(l))
        return 0;
    if (stat(l->name, &s))
        return errno == ENOENT ? check_folder(l->name)
                               : cli_error("--log %s: %s", l->name, strerror(errno));
    for (size_t i = 0; i < n && !err; i++)
        err = check_input(l->name, &s, inputs[i]);
    if (err)
        return err;
    if (S_ISREG(s.st_mode) && is_of_model(l->name))
        return cli_error("--log %s: it is a file of a model: give another", l->name);
    if (S_ISDIR(s.st_mode) || access(l->name, W_OK))
        return cli_error("--log %s: %s", l->name,
                         strerror(S_ISDIR(s.st_mode) ? EISDIR : errno));
    return 0;
}

/* ---- Lines ------------------------------------------------------------------------------------- */

static json_t *json_lanes(const struct penstock_train_step *s)
{
    json_t *list = json_array();
    for (int l = 0; l < s->n_lanes; l++)
        json_array_append_new(list,
                              json_pack("{s:s, s:I, s:I}", "lane", s->lanes[l], "bytes",
                                        (json_int_t)s->lane_bytes[l], "bytes_predicted",
                                        (json_int_t)s->lane_bytes_predicted[l]));
    return list;
}

static json_t *json_step(const struct penstock_train_step *s)
{
    json_t *o =
        json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "step",
                  (json_int_t)s->step, "loss", s->loss, "grad_norm", s->grad_norm, "lr",
                  s->lr, "tokens_per_s", s->tokens_per_s, "step_s", s->step_s, "bubble",
                  s->bubble, "bubble_predicted", s->bubble_predicted, "plan_s", s->plan_s,
                  "plan_s_predicted", s->plan_s_predicted, "lanes", json_lanes(s));

    if (o && !isnan(s->held_out_loss_before))
        json_object_set_new(o, "held_out_loss_before",
                            json_real(s->held_out_loss_before));
    if (o && !isnan(s->held_out_loss))
        json_object_set_new(o, "held_out_loss", json_real(s->held_out_loss));
    return o;
}

static int open_log(struct train_log *l)
{
    l->f = train_log_is_stdout(l) ? stdout : fopen(l->name, l->append ? "a" : "w");
    return l->f ? 0 : fail(l, errno);
}

int train_log_step(struct train_log *l, const struct penstock_train_step *s)
{
    if (!l->name || l->failed)
        return 0;
    int err = l->f ? 0 : open_log(l);
    json_t *o = err ? NULL : json_step(s);

    if (!err && !o)
        err = fail(l, ENOMEM);
    if (!err && (json_dumpf(o, l->f, JSON_COMPACT | JSON_REAL_PRECISION(17)) ||
                 fputc('\n', l->f) == EOF || fflush(l->f)))
        err = fail(l, errno);
    json_decref(o);
    return err;
}

int train_log_close(struct train_log *l)
{
    if (l->f && l->f != stdout && fclose(l->f))
        fail(l, errno);
    return l->failed ? -EIO : 0;
}
