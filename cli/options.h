/* What sub-commands share on the command line: flags that say where a model runs, numbers. */
#ifndef PENSTOCK_OPTIONS_H
#define PENSTOCK_OPTIONS_H

#include <getopt.h>

#include "cli/error.h"
#include "cli/files.h"
#include "runtime/penstock.h"

/* Values of flags that have no letter. Sub-commands begin their own at OPT_OWN. */
enum {
    OPT_DEVICES = 256,
    OPT_STAGES,
    OPT_SPLIT,
    OPT_LAYERS,
    OPT_UBATCH,
    OPT_LINK,
    OPT_ORDER,
    OPT_DTYPE,
    OPT_SHAPE,
    OPT_OWN
};

/* The rows of these flags in a table for getopt_long; their letters are ":m:c:vh". */
#define LANE_FLAGS                                                                       \
    {"model", required_argument, NULL, 'm'}, {"ctx-size", required_argument, NULL, 'c'}, \
        {"devices", required_argument, NULL, OPT_DEVICES},                               \
        {"stages", required_argument, NULL, OPT_STAGES},                                 \
        {"split", required_argument, NULL, OPT_SPLIT},                                   \
        {"layers", required_argument, NULL, OPT_LAYERS},                                 \
        {"ubatch", required_argument, NULL, OPT_UBATCH},                                 \
        {"ubatch-size", required_argument, NULL, OPT_UBATCH},                            \
        {"link", required_argument, NULL, OPT_LINK},                                     \
        {"order", required_argument, NULL, OPT_ORDER},                                   \
        {"dtype", required_argument, NULL, OPT_DTYPE},                                   \
        {"shape", required_argument, NULL, OPT_SHAPE},                                   \
        {"verbose", no_argument, NULL, 'v'},                                             \
    {                                                                                    \
        "help", no_argument, NULL, 'h'                                                   \
    }

/* Their description, for usage texts: those of inference alone, then all others. */
extern const char infer_flags_help[], lane_flags_help[];

/* Whether there is exactly one of -m and --shape; a line if not. */
bool has_model(const struct penstock_options *o);

/* Takes one of these flags. 0; 1 if it is not one of them; -EINVAL after a line. */
int lane_flag(struct penstock_options *o, int flag, const char *value);

/* Whole and real numbers, wholly read and within [low, high]; else a line that names the flag, -EINVAL. */
int parse_int(long *out, const char *flag, const char *value, long low, long high);
int parse_real(double *out, const char *flag, const char *value, double low, double high);

/* getopt_long, whose letters begin with ':'; what it does not accept gives a line and '?'. */
int next_flag(int argc, char **argv, const char *letters, const struct option *flags);

/* 0 if flags were all there was; else a line, -EINVAL. */
int no_arguments(int argc, char **argv);

#endif
