/* Results of penstock bench as a table or as data. */
#ifndef PENSTOCK_BENCH_PRINT_H
#define PENSTOCK_BENCH_PRINT_H

#include <stdio.h>

#include "runtime/penstock.h"

enum bench_format { BENCH_NONE, BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL };

/* Columns of the table, in their order. */
enum bench_column {
    COLUMN_MODEL,
    COLUMN_SIZE,
    COLUMN_PARAMS,
    COLUMN_BACKEND,
    COLUMN_DEVICES,
    COLUMN_STAGES,
    COLUMN_SPLIT,
    COLUMN_LAYERS,
    COLUMN_DTYPE,
    COLUMN_ORDER,
    COLUMN_UBATCH,
    COLUMN_BATCH,
    COLUMN_MICRO_BATCHES,
    COLUMN_SCHEDULE,
    COLUMN_LINK,
    COLUMN_TEST,
    COLUMN_SPEED,
    COLUMN_BUBBLE,
    COLUMN_COUNT
};

struct bench_row {
    const struct penstock_options *options;
    const struct penstock_model_info *model;
    const struct penstock_bench_case *test;
    const struct penstock_bench_result *result;
};

struct bench_printer {
    FILE *file;
    enum bench_format format;
    bool hidden[COLUMN_COUNT]; /* columns that the table leaves out */
    bool begun;
};

/* Takes -o's word. -EINVAL after a line. */
int bench_format_parse(enum bench_format *format, const char *flag, const char *word);

/* Prints a row, before the first one what comes before them. -ENOMEM after a line. */
int bench_print(struct bench_printer *p, const struct bench_row *row);

/* Prints what comes after all rows; after an interrupt, even if there are none. */
void bench_print_end(struct bench_printer *p, bool interrupted);

#endif
