/* The version of the library, for programs that load it. */
#include "runtime/penstock.h"

#include "config.h"

const char *penstock_version(void)
{
    return PACKAGE_VERSION;
}
