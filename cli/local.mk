# Sources of penstock(1), one a line, headers too.
penstock_SOURCES += \
	%D%/bench.c \
	%D%/bench_print.c \
	%D%/bench_print.h \
	%D%/grad.c \
	%D%/lists.c \
	%D%/lists.h \
	%D%/main.c \
	%D%/cmd.h \
	%D%/error.c \
	%D%/error.h \
	%D%/files.c \
	%D%/files.h \
	%D%/options.c \
	%D%/options.h \
	%D%/progress.c \
	%D%/progress.h \
	%D%/prompts.c \
	%D%/prompts.h \
	%D%/report.c \
	%D%/report.h \
	%D%/run.c \
	%D%/schedule.c \
	%D%/score.c \
	%D%/tokenize.c \
	%D%/topo.c \
	%D%/train.c \
	%D%/train_log.c \
	%D%/train_log.h
