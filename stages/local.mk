# Sources of stages/, one a line, headers too.
libpenstock_core_la_SOURCES += \
	%D%/batch.c \
	%D%/batch.h \
	%D%/config.c \
	%D%/config.h \
	%D%/dequant.c \
	%D%/doc.c \
	%D%/doc.h \
	%D%/file.c \
	%D%/file.h \
	%D%/gguf.c \
	%D%/gguf.h \
	%D%/gguf_value.c \
	%D%/head.c \
	%D%/hf.c \
	%D%/hf.h \
	%D%/layer.c \
	%D%/load.c \
	%D%/model.c \
	%D%/model.h \
	%D%/partition.c \
	%D%/partition.h \
	%D%/random.c \
	%D%/random.h \
	%D%/rope.c \
	%D%/safetensors.c \
	%D%/safetensors.h \
	%D%/safetensors_set.c \
	%D%/shape.c \
	%D%/source.c \
	%D%/source.h \
	%D%/source_gguf.c \
	%D%/stage.c \
	%D%/stage.h \
	%D%/tokenizer.h
