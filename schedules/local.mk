# Sources of schedules/, one a line, headers too.
libpenstock_core_la_SOURCES += \
	%D%/1f1b.c \
	%D%/1f1b_eager.c \
	%D%/check.c \
	%D%/check.h \
	%D%/chimera.c \
	%D%/comm.c \
	%D%/costs.c \
	%D%/costs.h \
	%D%/csv.h \
	%D%/csv_read.c \
	%D%/csv_write.c \
	%D%/dualpipe.c \
	%D%/dualpipe.h \
	%D%/dualpipev.c \
	%D%/edges.c \
	%D%/edges.h \
	%D%/forward.c \
	%D%/gpipe.c \
	%D%/greedy.c \
	%D%/greedy.h \
	%D%/interleaved.c \
	%D%/list.c \
	%D%/list.h \
	%D%/looped_bfs.c \
	%D%/order.c \
	%D%/plan.c \
	%D%/sched.h \
	%D%/simulate.c \
	%D%/simulate.h \
	%D%/v_half.c \
	%D%/zb_h1.c \
	%D%/zb_h2.c \
	%D%/zb_v.c
