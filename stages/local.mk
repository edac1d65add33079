# Sources of stages/, one a line, headers too.
libpenstock_core_la_SOURCES +=
