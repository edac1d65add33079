/* A run's report: a table for people, JSON for programs. */
#ifndef PENSTOCK_CLI_REPORT_H
#define PENSTOCK_CLI_REPORT_H

#include "runtime/penstock.h"

/* The stages, and what the lanes did, to stderr. */
void report_stages(const struct penstock_report *r);
void report_speed(const struct penstock_report *r);

/* The report with every sequence's tokens and, if t has a tokenizer, text. -errno after a line. */
int report_write_json(const char *path, const struct penstock_report *r,
                      struct penstock_text *t);

#endif
