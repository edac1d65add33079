# Tests. A unit test %D%/ROOM-SUBJECT is built from %D%/ROOM-SUBJECT.c, links the whole core and
# goes into UNIT_TESTS; a script goes into SCRIPT_TESTS. Exit status 77 means skipped. In the
# environment of a test: srcdir, and PENSTOCK, the program that was built.
UNIT_TESTS =
SCRIPT_TESTS = %D%/house-includes.sh
GOLDENS =
GOLDEN_TOOLS =
FUZZ_TARGETS =

# --- kernels ---
UNIT_TESTS += \
	%D%/kernels-attn \
	%D%/kernels-base \
	%D%/kernels-cpu \
	%D%/kernels-pool \
	%D%/kernels-sample \
	%D%/kernels-train \
	%D%/kernels-train-attn \
	%D%/kernels-train-step \
	%D%/kernels-twin \
	%D%/kernels-twin-attn \
	%D%/kernels-twin-sample \
	%D%/kernels-twin-train \
	%D%/kernels-twin-train-attn \
	%D%/kernels-vec
EXTRA_DIST += %D%/kernels.h %D%/kernels-train.h %D%/kernels-twin.h

# --- schedules ---
UNIT_TESTS += \
	%D%/schedules-auto \
	%D%/schedules-csv \
	%D%/schedules-measured \
	%D%/schedules-mutations \
	%D%/schedules-shapes \
	%D%/schedules-values
SCRIPT_TESTS += %D%/schedules-golden.sh %D%/schedules-pytorch.sh
GOLDENS += %D%/golden/schedules.sh
EXTRA_DIST += %D%/plans %D%/schedules-slow.h %D%/schedules-pytorch.py

# --- stages ---
UNIT_TESTS += \
	%D%/stages-badfolder \
	%D%/stages-badgguf \
	%D%/stages-badtokenizer \
	%D%/stages-chat \
	%D%/stages-config \
	%D%/stages-data \
	%D%/stages-gguf \
	%D%/stages-hf-write \
	%D%/stages-model \
	%D%/stages-partition \
	%D%/stages-partition-best \
	%D%/stages-tokenizer
SCRIPT_TESTS += %D%/stages-transformers.sh
EXTRA_DIST += %D%/stages-transformers.py
EXTRA_DIST += %D%/data %D%/stages-files.h %D%/stages-refuse.h %D%/stages-tokenizers.h

# --- runtime ---
UNIT_TESTS += \
	%D%/runtime-assign \
	%D%/runtime-bench \
	%D%/runtime-grad \
	%D%/runtime-lane \
	%D%/runtime-link \
	%D%/runtime-link-gpu \
	%D%/runtime-place \
	%D%/runtime-train \
	%D%/runtime-train-memory \
	%D%/runtime-train-run \
	%D%/runtime-topo \
	%D%/runtime-reference \
	%D%/runtime-smollm2 \
	%D%/runtime-watch
EXTRA_DIST += %D%/topologies

# --- cli ---
SCRIPT_TESTS += \
	%D%/cli-bad.sh \
	%D%/cli-bench.sh \
	%D%/cli-output.sh \
	%D%/cli-topo.sh \
	%D%/cli-train.sh

# --- golden files: scripts that make golden runs, programs that they need ---
GOLDENS += %D%/golden/stages-models.sh %D%/golden/stages-tokenizers.sh
EXTRA_DIST += %D%/golden/stages-models.py %D%/golden/stages-tokenizers.py \
	%D%/golden/stages-chat.py
GOLDENS += %D%/golden/smollm2.sh
EXTRA_DIST += %D%/golden/smollm2.py
GOLDEN_TOOLS +=

# --- fuzz targets: %D%/fuzz/NAME from %D%/fuzz/NAME.c, with configure --enable-fuzzers; each
#     with a line tests_fuzz_NAME_LDFLAGS = $(FUZZ_LINK). Seeds lie in %D%/fuzz/NAME.seeds/ ---
FUZZ_LINK = $(AM_LDFLAGS) $(FUZZER_LDFLAGS)
FUZZ_TARGETS += %D%/fuzz/config %D%/fuzz/data %D%/fuzz/gguf %D%/fuzz/safetensors \
	%D%/fuzz/schedule %D%/fuzz/tokenizer
tests_fuzz_config_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_data_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_gguf_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_safetensors_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_schedule_LDFLAGS = $(FUZZ_LINK)
tests_fuzz_tokenizer_LDFLAGS = $(FUZZ_LINK)
EXTRA_DIST += %D%/fuzz/config.seeds %D%/fuzz/data.seeds %D%/fuzz/gguf.seeds \
	%D%/fuzz/safetensors.seeds %D%/fuzz/schedule.seeds %D%/fuzz/tokenizer.seeds

# --- the rest is the same for all rooms ---
LDADD = libpenstock-core.la $(CMOCKA_LIBS)
AM_CPPFLAGS += $(CMOCKA_CFLAGS)
EXTRA_PROGRAMS += $(GOLDEN_TOOLS)
EXTRA_DIST += $(SCRIPT_TESTS) $(GOLDENS) %D%/test.h %D%/no-cmocka.sh %D%/reference

if HAVE_CMOCKA
check_PROGRAMS = $(UNIT_TESTS)
TESTS = $(UNIT_TESTS) $(SCRIPT_TESTS)
else
check_PROGRAMS =
TESTS = %D%/no-cmocka.sh $(SCRIPT_TESTS)
endif
if FUZZERS
noinst_PROGRAMS += $(FUZZ_TARGETS)
endif

# A test that hangs fails after ten minutes.
TEST_EXTENSIONS = .sh
LOG_COMPILER = timeout
AM_LOG_FLAGS = -k 10 600
SH_LOG_COMPILER = timeout
AM_SH_LOG_FLAGS = -k 10 600 bash
AM_TESTS_ENVIRONMENT = PENSTOCK=$(abs_builddir)/penstock; export PENSTOCK; \
	STARPU_HOME=$(abs_builddir)/tests; export STARPU_HOME;
