/* One GPU against its own ceilings: a matrix product and a copy, then kernels and whole models as shares of them.
 * usage: device [kernels|prefill|decode|train ...]   (default: prefill decode train); status 77: no GPU. */
#include "bench/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runtime/penstock.h"

const struct bench_shape bench_shapes[2] = {
    {"llama-1b", 2048, 16, 32, 8, 64, 8192, 128256},
    {"llama-8b", 4096, 32, 32, 8, 128, 14336, 128256},
};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, int n)
{
    qsort(x, n, sizeof(*x), ascending);
    return x[n / 2];
}

void bench_row_flops(const char *what, double seconds, double flops,
                     const struct ceilings *c)
{
    printf("%-44s %10.3f ms %8.1f TFLOP/s  %5.3f of the matrix product\n", what,
           seconds * 1e3, flops / seconds * 1e-12, flops / seconds / c->flops);
    fflush(stdout);
}

void bench_row_bytes(const char *what, double seconds, double bytes,
                     const struct ceilings *c)
{
    printf("%-44s %10.3f ms %8.1f GB/s     %5.3f of the copy\n", what, seconds * 1e3,
           bytes / seconds * 1e-9, bytes / seconds / c->bytes);
    fflush(stdout);
}

double bench_layer_flops(const struct bench_shape *s, int sequences, int positions)
{
    double T = positions, HD = (double)s->H * s->D, C = s->C;
    double weights = C * (HD + 2.0 * s->K * s->D) + HD * C + 3.0 * C * s->F;

    return s->L * sequences * (2 * weights * T + 2 * T * T * HD);
}

static void one_shape(const struct bench_shape *s, const struct ceilings *c,
                      const char *part)
{
    printf("\n%s, %s\n", s->name, part);
    if (!strcmp(part, "kernels"))
        bench_kernels(s, c);
    if (!strcmp(part, "prefill")) {
        bench_prefill(s, c, NULL, 1);
        bench_prefill(s, c, NULL, 4);
    }
    for (int sequences = 1; !strcmp(part, "decode") && sequences <= 32; sequences *= 32) {
        bench_decode(s, c, NULL, 1, sequences);
        bench_decode(s, c, NULL, 4, sequences);
    }
    if (!strcmp(part, "train") && s->L == 16) {
        bench_train(s, c, NULL, 1);
        bench_train(s, c, NULL, 4);
    }
}

int main(int argc, char **argv)
{
    static char *all[] = {"", "prefill", "decode", "train"};
    struct device_info info;
    struct ceilings c;

    if (!device_count()) {
        printf("no GPU: %s\n", device_why_none());
        return 77;
    }
    if (argc < 2) {
        argv = all;
        argc = ARRAY_LEN(all);
    }
    if (device_query(&info, 0))
        return 1;
    bench_ceilings(&c);
    printf("%s, penstock %s: matrix product %.1f TFLOP/s, copy %.1f GB/s\n", info.name,
           penstock_version(), c.flops * 1e-12, c.bytes * 1e-9);
    for (int i = 1; i < argc; i++)
        for (size_t k = 0; k < ARRAY_LEN(bench_shapes); k++)
            one_shape(&bench_shapes[k], &c, argv[i]);
    return 0;
}
