/* Files and standard streams as sub-commands use them. */
#ifndef PENSTOCK_CLI_FILES_H
#define PENSTOCK_CLI_FILES_H

#include <stddef.h>
#include <stdio.h>

/* A whole file, terminated; "-" is standard input. *text (*len) is freed by the caller. -errno after a line. */
int read_file(char **text, size_t *len, const char *path);

/* penstock_write: path is whole or as it was. -errno after a line. */
int write_file(const char *path, int (*write)(FILE *f, void *arg), void *arg);

/* Whether write_file can begin, asked before work that takes long; path NULL: nothing to ask.
 * -errno after a line. */
int check_output(const char *path);

/* Flushes stdout; non-zero after a line if what was printed could not be written. */
int close_stdout(void);

/* Occupies standard streams that are closed, so that no file that is opened later takes their
 * place; reading from and writing to these fails. */
void keep_streams(void);

#endif
