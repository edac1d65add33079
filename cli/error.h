/* Errors of the command line. */
#ifndef PENSTOCK_CLI_ERROR_H
#define PENSTOCK_CLI_ERROR_H

/* One line on stderr, whatever the flags and files that it quotes hold. Returns -EINVAL. */
int cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for memory. Returns -ENOMEM. */
int cli_no_memory(const char *what);

#endif
