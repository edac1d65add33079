# Sources of runtime/, one a line, headers too. The one header that is installed goes into
# include_HEADERS.
libpenstock_core_la_SOURCES += \
	%D%/assign.c \
	%D%/assign.h \
	%D%/lane.c \
	%D%/lane.h \
	%D%/link.c \
	%D%/link.h \
	%D%/link_copy.c \
	%D%/link_host.c \
	%D%/place.c \
	%D%/place.h \
	%D%/place_parse.c \
	%D%/batcher.c \
	%D%/batcher.h \
	%D%/bench.c \
	%D%/checkpoint.c \
	%D%/checkpoint.h \
	%D%/engine.c \
	%D%/engine.h \
	%D%/events.c \
	%D%/events.h \
	%D%/order.c \
	%D%/order.h \
	%D%/step.c \
	%D%/fault.c \
	%D%/fault.h \
	%D%/generate.c \
	%D%/generation.h \
	%D%/save.c \
	%D%/score.c \
	%D%/session.c \
	%D%/session.h \
	%D%/infer.c \
	%D%/infer.h \
	%D%/infer_step.c \
	%D%/machine.c \
	%D%/machine.h \
	%D%/setup.c \
	%D%/setup.h \
	%D%/task.c \
	%D%/task.h \
	%D%/grad.c \
	%D%/text.c \
	%D%/trainer.c \
	%D%/trainer.h \
	%D%/trainer_step.c \
	%D%/train.c \
	%D%/training.c \
	%D%/training.h \
	%D%/topo.c \
	%D%/topo.h \
	%D%/topo_svg.c \
	%D%/topo_text.c \
	%D%/version.c \
	%D%/watch.c
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
