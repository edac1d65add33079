# Benchmark programs: %D%/NAME is built from %D%/NAME.c by make bench, which then runs it.
BENCHES = %D%/kernels
EXTRA_PROGRAMS = $(BENCHES)
