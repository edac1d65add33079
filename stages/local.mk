# Sources of stages/, one a line, headers too.
libpenstock_core_la_SOURCES += \
	%D%/batch.c \
	%D%/batch.h \
	%D%/gguf.h \
	%D%/head.c \
	%D%/layer.c \
	%D%/load.c \
	%D%/model.h \
	%D%/partition.c \
	%D%/partition.h \
	%D%/stage.c \
	%D%/stage.h \
	%D%/tokenizer.h
