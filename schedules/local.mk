# Sources of schedules/, one a line, headers too.
libpenstock_core_la_SOURCES += \
	%D%/comm.c \
	%D%/forward.c \
	%D%/order.c \
	%D%/plan.c \
	%D%/sched.h
