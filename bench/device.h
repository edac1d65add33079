/* What the parts of the device benchmark share: the ceilings, and rows of its table. */
#ifndef PENSTOCK_BENCH_DEVICE_H
#define PENSTOCK_BENCH_DEVICE_H

#include <stddef.h>

#define BENCH_TRIES 7 /* a figure is the median of so many */

struct ceilings {
    double flops; /* per second, bf16 matrix product of 8192 cubed */
    double bytes; /* per second, read plus written, device-to-device copy */
};

struct bench_shape {
    const char *name; /* as --shape */
    int C, L, H, K, D, F, V;
};

extern const struct bench_shape bench_shapes[2];

double bench_median(double *x, int n);

/* One row: milliseconds and the share of a ceiling. */
void bench_row_flops(const char *what, double seconds, double flops,
                     const struct ceilings *c);
void bench_row_bytes(const char *what, double seconds, double bytes,
                     const struct ceilings *c);

/* FLOPs of the layers over so many tokens: 2 per weight and token, and causal attention over whole sequences. */
double bench_layer_flops(const struct bench_shape *s, int sequences, int positions);

/* Both measure on GPU 0; they exit after an error. */
void bench_ceilings(struct ceilings *c);
void bench_kernels(const struct bench_shape *s, const struct ceilings *c);
/* devices: one lane or slices; NULL: cuda:0. */
void bench_prefill(const struct bench_shape *s, const struct ceilings *c,
                   const char *devices, int stages);
void bench_decode(const struct bench_shape *s, const struct ceilings *c,
                  const char *devices, int stages, int sequences);
void bench_train(const struct bench_shape *s, const struct ceilings *c,
                 const char *devices, int stages);

#endif
