# Sources of runtime/, one a line, headers too. The one header that is installed goes into
# include_HEADERS.
libpenstock_core_la_SOURCES += \
	%D%/lane.c \
	%D%/lane.h \
	%D%/link.c \
	%D%/link.h \
	%D%/link_copy.c \
	%D%/link_host.c \
	%D%/place.c \
	%D%/place.h \
	%D%/place_parse.c \
	%D%/version.c
include_HEADERS += \
	%D%/penstock.h

if HAVE_CUDA
libpenstock_core_la_SOURCES +=
else
libpenstock_core_la_SOURCES +=
endif

if HAVE_NCCL
libpenstock_core_la_SOURCES += \
	%D%/link_nccl.c
else
libpenstock_core_la_SOURCES += \
	%D%/link_nccl_none.c
endif
