/* One line about what was wrong. */
#include "cli/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int cli_error(const char *format, ...)
{
    char line[2048];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (n >= (int)sizeof(line))
        memcpy(line + sizeof(line) - 4, "...", 4);
    for (char *c = line; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "penstock: error: %s\n", line);
    return -EINVAL;
}

int cli_no_memory(const char *what)
{
    cli_error("out of memory: no room for %s", what);
    return -ENOMEM;
}
