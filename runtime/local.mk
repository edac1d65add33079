# Sources of runtime/, one a line, headers too. The one header that is installed goes into
# include_HEADERS.
libpenstock_core_la_SOURCES += \
	%D%/version.c
include_HEADERS += \
	%D%/penstock.h

if HAVE_CUDA
libpenstock_core_la_SOURCES +=
else
libpenstock_core_la_SOURCES +=
endif

if HAVE_NCCL
libpenstock_core_la_SOURCES +=
else
libpenstock_core_la_SOURCES +=
endif
