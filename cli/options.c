/* Flags and numbers of the command line. */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char infer_flags_help[] =
    "  -c, --ctx-size N      longest sequence, prompt and answer (default: what is "
    "needed)\n"
    "      --stages N        stages (default: one per lane)\n"
    "      --ubatch N        tokens of a prefill micro-batch (default 512)\n";

const char lane_flags_help[] =
    "  -m, --model PATH      Hugging Face folder or GGUF file\n"
    "      --shape NAME      random weights instead: smollm2-135m, llama-1b, llama-8b, "
    "or a\n"
    "                        config.json\n"
    "      --devices LIST    lanes: cuda:0,cuda:1  cuda:0/4 (four slices)  cpu:0  "
    "cpu:0-7\n"
    "                        (default: every GPU, else two CPU lanes)\n"
    "      --split R,R,..    layers per stage in these ratios (default: by cost)\n"
    "      --layers N,N,..   exact layers per stage\n"
    "      --link KIND       auto, nccl, copy or host\n"
    "      --order KIND      strict, prio or free\n"
    "      --dtype TYPE      auto, fp32 or bf16\n"
    "  -v, --verbose         say more on stderr\n"
    "  -h, --help            this text\n";

static int bad(const char *flag, const char *value, const char *expected)
{
    return cli_error("%s %s: expected %s", flag, value, expected);
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
        cli_error("give one of -m MODEL and --shape NAME");
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

int next_flag(int argc, char **argv, const char *letters, const struct option *flags)
{
    opterr = 0;
    int flag = getopt_long(argc, argv, letters, flags, NULL);
    const char *word = argv[optind - 1];
    bool spelt = !strncmp(word, "--", 2);

    if (flag == ':')
        cli_error("%s needs a value", word);
    else if (flag == '?' && !spelt)
        cli_error("no flag -%c: see %s --help", optopt, argv[0]);
    else if (flag == '?' && optopt)
        cli_error("%s: this flag takes no value", word);
    else if (flag == '?')
        cli_error("no flag %s: see %s --help", word, argv[0]);
    return flag == ':' ? '?' : flag;
}

int no_arguments(int argc, char **argv)
{
    return optind < argc
               ? cli_error("unexpected argument %s: see %s --help", argv[optind], argv[0])
               : 0;
}
