# Benchmark programs: %D%/NAME is built from %D%/NAME.c by make bench, which then runs it.
BENCHES = %D%/kernels
EXTRA_PROGRAMS = $(BENCHES)
EXTRA_DIST += %D%/cpu.sh %D%/finetune.sh %D%/gpu.sh %D%/results/2026-12-01-h200.txt
