# Sources of kernels/, one a line, headers too.
libpenstock_core_la_SOURCES += \
	%D%/adamw_cpu.c \
	%D%/arena.c \
	%D%/arena.h \
	%D%/attn_bwd_cpu.c \
	%D%/attn_cpu.c \
	%D%/base.c \
	%D%/base.h \
	%D%/blas.c \
	%D%/blas.h \
	%D%/cpu.c \
	%D%/cpu.h \
	%D%/device.h \
	%D%/embed_bwd_cpu.c \
	%D%/embed_cpu.c \
	%D%/exp.h \
	%D%/gemm_bwd_cpu.c \
	%D%/gemm_cpu.c \
	%D%/kernel.c \
	%D%/kernel.h \
	%D%/loss_bwd_cpu.c \
	%D%/loss_cpu.c \
	%D%/norm_bwd_cpu.c \
	%D%/norm_cpu.c \
	%D%/pool.c \
	%D%/pool.h \
	%D%/rope_cpu.c \
	%D%/sample.h \
	%D%/sample_cpu.c \
	%D%/swiglu_bwd_cpu.c \
	%D%/swiglu_cpu.c \
	%D%/train.h \
	%D%/train_cpu.c \
	%D%/train_cpu.h \
	%D%/vec.c \
	%D%/vec.h \
	%D%/vec_avx2.c \
	%D%/vec_avx512.c \
	%D%/vec_base.c \
	%D%/vec_body.h \
	%D%/vec_train_body.h

if HAVE_CUDA
libpenstock_core_la_SOURCES += \
	%D%/adamw_cuda.cu \
	%D%/attn_bwd_cuda.cu \
	%D%/attn_bwd_f32_cuda.cu \
	%D%/attn_bwd_mma_cuda.cu \
	%D%/attn_cuda.cu \
	%D%/cuda.cu \
	%D%/cuda.h \
	%D%/device_cuda.cu \
	%D%/embed_bwd_cuda.cu \
	%D%/embed_cuda.cu \
	%D%/f32_cuda.h \
	%D%/gemm_bwd_cuda.cu \
	%D%/gemm_cuda.cu \
	%D%/loss_bwd_cuda.cu \
	%D%/loss_cuda.cu \
	%D%/mma_cuda.h \
	%D%/norm_bwd_cuda.cu \
	%D%/norm_cuda.cu \
	%D%/prefill_cuda.cu \
	%D%/rope_cuda.cu \
	%D%/sample_cuda.cu \
	%D%/swiglu_bwd_cuda.cu \
	%D%/swiglu_cuda.cu \
	%D%/train_cuda.cu \
	%D%/train_cuda.h
else
libpenstock_core_la_SOURCES += \
	%D%/device_none.c \
	%D%/none.c
endif
