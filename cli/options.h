/* What sub-commands share on the command line: flags that say where a model runs, numbers, files. */
#ifndef PENSTOCK_OPTIONS_H
#define PENSTOCK_OPTIONS_H

#include <getopt.h>

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

/* The rows of these flags in a table for getopt_long; their letters are "m:c:vh". */
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

/* Their description, for usage texts. */
extern const char lane_flags_help[];

/* Whether there is exactly one of -m and --shape; a line if not. */
bool has_model(const struct penstock_options *o);

/* Takes one of these flags. 0; 1 if it is not one of them; -EINVAL after a line. */
int lane_flag(struct penstock_options *o, int flag, const char *value);

/* Whole and real numbers, wholly read and within [low, high]; else a line that names the flag, -EINVAL. */
int parse_int(long *out, const char *flag, const char *value, long low, long high);
int parse_real(double *out, const char *flag, const char *value, double low, double high);

/* A whole file, terminated; "-" is standard input. *text (*len) is freed by the caller. -errno after a line. */
int read_file(char **text, size_t *len, const char *path);

/* Writes to a temporary name beside path, syncs and renames: path is whole or untouched. -errno after a line. */
int write_file(const char *path, int (*write)(FILE *f, void *arg), void *arg);

/* Flushes stdout; non-zero after a line if what was printed could not be written. */
int close_stdout(void);

#endif
