# Sources of kernels/, one a line, headers too.
libpenstock_core_la_SOURCES += \
	%D%/base.h

if HAVE_CUDA
libpenstock_core_la_SOURCES +=
else
libpenstock_core_la_SOURCES +=
endif
