# Benchmark programs: %D%/NAME is built from %D%/NAME.c by make bench, which then runs it.
BENCHES = %D%/kernels %D%/device
EXTRA_PROGRAMS = $(BENCHES)
EXTRA_DIST += %D%/cpu.sh %D%/finetune.sh %D%/gpu.sh %D%/rivals.py %D%/results/2026-12-01-h200.txt
bench_device_SOURCES = %D%/device.c %D%/device.h %D%/device_kernels.c %D%/device_model.c
