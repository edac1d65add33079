/* Flags, numbers and files of the command line. */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char lane_flags_help[] =
    "  -m, --model PATH      Hugging Face folder or GGUF file\n"
    "      --shape NAME      random weights instead: smollm2-135m, llama-1b, llama-8b, "
    "or a\n"
    "                        config.json\n"
    "  -c, --ctx-size N      longest sequence, prompt and answer (default: what is "
    "needed)\n"
    "      --devices LIST    lanes: cuda:0,cuda:1  cuda:0/4 (four slices)  cpu:0  "
    "cpu:0-7\n"
    "                        (default: every GPU, else two CPU lanes)\n"
    "      --stages N        stages (default: one per lane)\n"
    "      --split R,R,..    layers per stage in these ratios (default: by cost)\n"
    "      --layers N,N,..   exact layers per stage\n"
    "      --ubatch N        tokens of a prefill micro-batch (default 512)\n"
    "      --link KIND       auto, nccl, copy or host\n"
    "      --order KIND      strict or prio\n"
    "      --dtype TYPE      auto, fp32 or bf16\n"
    "  -v, --verbose         say more on stderr\n"
    "  -h, --help            this text\n";

static int bad(const char *flag, const char *value, const char *expected)
{
    fprintf(stderr, "penstock: error: %s %s: expected %s\n", flag, value, expected);
    return -EINVAL;
}

int parse_int(long *out, const char *flag, const char *value, long low, long high)
{
    char *end, expected[64];
    errno = 0;
    *out = strtol(value, &end, 10);
    if (end != value && !*end && !errno && *out >= low && *out <= high)
        return 0;
    snprintf(expected, sizeof(expected), "a whole number from %ld to %ld", low, high);
    return bad(flag, value, expected);
}

int parse_real(double *out, const char *flag, const char *value, double low, double high)
{
    char *end, expected[64];
    *out = strtod(value, &end);
    if (end != value && !*end && *out >= low && *out <= high)
        return 0;
    snprintf(expected, sizeof(expected), "a number from %g to %g", low, high);
    return bad(flag, value, expected);
}

static int lane_number(struct penstock_options *o, int flag, const char *value)
{
    long n = 0;
    int err;
    switch (flag) {
    case 'c':
        err = parse_int(&n, "-c", value, 0, 1L << 30);
        o->context = n;
        return err;
    case OPT_STAGES:
        err = parse_int(&n, "--stages", value, 1, 65536);
        o->stages = (int)n;
        return err;
    default:
        err = parse_int(&n, "--ubatch", value, 1, 1 << 20);
        o->ubatch = (int)n;
        return err;
    }
}

bool has_model(const struct penstock_options *o)
{
    if (!o->model == !o->shape)
        fprintf(stderr, "penstock: error: give one of -m MODEL and --shape NAME\n");
    return !o->model != !o->shape;
}

int lane_flag(struct penstock_options *o, int flag, const char *value)
{
    switch (flag) {
    case 'm':
        o->model = value;
        return 0;
    case OPT_SHAPE:
        o->shape = value;
        return 0;
    case OPT_DEVICES:
        o->devices = value;
        return 0;
    case OPT_SPLIT:
        o->split = value;
        return 0;
    case OPT_LAYERS:
        o->layers = value;
        return 0;
    case OPT_LINK:
        o->link = value;
        return 0;
    case OPT_ORDER:
        o->order = value;
        return 0;
    case OPT_DTYPE:
        o->dtype = value;
        return 0;
    case 'v':
        penstock_set_verbosity(2);
        return 0;
    case 'c':
    case OPT_STAGES:
    case OPT_UBATCH:
        return lane_number(o, flag, value);
    default:
        return 1;
    }
}

static int file_error(const char *path, int err)
{
    fprintf(stderr, "penstock: error: %s: %s\n", path, strerror(err));
    return -err;
}

int read_file(char **text, size_t *len, const char *path)
{
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    size_t cap = 1 << 16, n = 0;
    char *buffer = malloc(cap + 1);
    int err = 0;

    if (!f || !buffer) {
        err = f ? ENOMEM : errno;
        free(buffer);
        return file_error(path, err);
    }
    errno = 0;
    for (size_t got; (got = fread(buffer + n, 1, cap - n, f)) > 0;) {
        n += got;
        if (n < cap)
            continue;
        char *more = realloc(buffer, 2 * cap + 1);
        if (!more) {
            err = ENOMEM;
            break;
        }
        buffer = more;
        cap *= 2;
    }
    if (!err && ferror(f))
        err = errno ? errno : EIO;
    if (f != stdin)
        fclose(f);
    if (err) {
        free(buffer);
        return file_error(path, err);
    }
    buffer[n] = '\0';
    *text = buffer;
    *len = n;
    return 0;
}

int write_file(const char *path, int (*write)(FILE *f, void *arg), void *arg)
{
    size_t size = strlen(path) + 32;
    char *temporary = malloc(size);
    int err = 0;
    if (!temporary)
        return -ENOMEM;
    snprintf(temporary, size, "%s.%ld.tmp", path, (long)getpid());
    FILE *f = fopen(temporary, "wb");
    if (!f) {
        err = file_error(path, errno);
        free(temporary);
        return err;
    }
    errno = 0;
    if (write(f, arg) || fflush(f) || fsync(fileno(f)))
        err = errno ? errno : EIO;
    if (fclose(f) && !err)
        err = errno;
    if (!err && rename(temporary, path))
        err = errno;
    if (err) {
        unlink(temporary);
        file_error(path, err);
    }
    free(temporary);
    return -err;
}

int close_stdout(void)
{
    if (!fflush(stdout) && !ferror(stdout))
        return 0;
    fprintf(stderr, "penstock: error: standard output: %s\n", strerror(errno));
    return -EIO;
}
