/* Whole models on one GPU: prefill, decode, training, by the paths that run and train take. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/device.h"
#include "runtime/generation.h"

#define POSITIONS 2048
#define SEQUENCES 4
#define CONTEXT   512
#define NEW       65 /* tokens of a decode run; the context is CONTEXT in its middle */

static int32_t *random_ids(size_t n, int V)
{
    int32_t *ids = malloc(n * sizeof(*ids));
    uint64_t x = 88172645463325252ull; /* xorshift64, Marsaglia, 2003 */

    for (size_t i = 0; ids && i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        ids[i] = (int32_t)(x % (uint64_t)V);
    }
    if (!ids)
        exit(1);
    return ids;
}

static const char *name(char *text, size_t size, const char *what, int stages,
                        const char *devices)
{
    snprintf(text, size, "%s, %d stage%s on %s", what, stages, stages > 1 ? "s" : "",
             devices ? devices : "cuda:0");
    return text;
}

/* Medians of prefill and of a token's time in decode over BENCH_TRIES runs, the first one apart. */
static void measure(double *prefill, double *token, const struct bench_shape *s,
                    const char *devices, int stages, int sequences, int prompt, int n)
{
    struct penstock_options o = {.shape = s->name,
                                 .devices = devices ? devices : "cuda:0",
                                 .stages = stages,
                                 .ubatch = sequences * prompt,
                                 .micro_batches = 1};
    struct penstock_prompt *p = calloc(sequences, sizeof(*p));
    int32_t *ids = random_ids((size_t)sequences * prompt, s->V);
    double a[BENCH_TRIES], b[BENCH_TRIES];
    struct generation g;

    for (int i = 0; i < sequences; i++)
        p[i] = (struct penstock_prompt){ids + (size_t)i * prompt, prompt};
    struct penstock_generate work = {
        .prompts = p, .n_prompts = sequences, .n_predict = n, .ignore_eos = true};
    if (generation_open(&g, &o, &work))
        exit(1);
    for (int i = -1; i < BENCH_TRIES; i++) {
        if (generation_run(&g))
            exit(1);
        if (i >= 0) {
            a[i] = g.prefill_end - g.begin;
            b[i] = (g.end - g.prefill_end) / (n - 1);
        }
    }
    generation_close(&g);
    free(ids);
    free(p);
    *prefill = bench_median(a, BENCH_TRIES);
    *token = bench_median(b, BENCH_TRIES);
}

void bench_prefill(const struct bench_shape *s, const struct ceilings *c,
                   const char *devices, int stages)
{
    double head = 2.0 * s->C * s->V * SEQUENCES, prefill, token;
    char text[128];

    measure(&prefill, &token, s, devices, stages, SEQUENCES, POSITIONS, 1);
    bench_row_flops(name(text, sizeof(text), "prefill 4 x 2048", stages, devices),
                    prefill, bench_layer_flops(s, SEQUENCES, POSITIONS) + head, c);
}

/* Bytes: every weight once, and the keys and values of all sequences. */
void bench_decode(const struct bench_shape *s, const struct ceilings *c,
                  const char *devices, int stages, int sequences)
{
    double C = s->C, layer = C * (2.0 * s->H + 2.0 * s->K) * s->D + 3.0 * C * s->F;
    double weights = s->L * layer + C * s->V;
    double cache = 2.0 * s->L * s->K * s->D * CONTEXT * sequences;
    double prefill, token;
    char text[128], what[64];

    measure(&prefill, &token, s, devices, stages, sequences, CONTEXT - NEW / 2, NEW);
    snprintf(what, sizeof(what), "decode at 512, %d sequence%s", sequences,
             sequences > 1 ? "s" : "");
    bench_row_bytes(name(text, sizeof(text), what, stages, devices), token,
                    2 * (weights + cache), c);
}

struct steps {
    double step[BENCH_TRIES];
    size_t bytes;
};

static int on_step(void *user, const struct penstock_train_step *s)
{
    struct steps *t = user;

    if (s->step > s->steps - BENCH_TRIES)
        t->step[s->step - 1 - (s->steps - BENCH_TRIES)] = s->step_s;
    t->bytes = 0;
    for (int l = 0; l < s->n_lanes; l++)
        t->bytes += s->lane_bytes[l];
    return !isfinite(s->loss);
}

static void write_ids(const char *path, const struct bench_shape *s)
{
    size_t n = (size_t)SEQUENCES * (POSITIONS + 1);
    int32_t *ids = random_ids(n, s->V);
    FILE *f = fopen(path, "w");

    if (!f)
        exit(1);
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%s%d", !i ? "[[" : i % (POSITIONS + 1) ? "," : "],[", ids[i]);
    fprintf(f, "]]");
    if (fclose(f))
        exit(1);
    free(ids);
}

void bench_train(const struct bench_shape *s, const struct ceilings *c,
                 const char *devices, int stages)
{
    double head = 2.0 * s->C * s->V * SEQUENCES * POSITIONS;
    char text[128], path[] = "/tmp/penstock-bench-XXXXXX.json";
    int fd = mkstemps(path, 5);
    struct steps t = {{0}, 0};
    struct penstock_options o = {.shape = s->name,
                                 .devices = devices ? devices : "cuda:0"};
    struct penstock_schedule how = {
        .name = "interleaved", .chunks = stages, .micro_batches = 1};
    struct penstock_train work = {.data = path,
                                  .unpacked = true,
                                  .batch = SEQUENCES,
                                  .positions = POSITIONS,
                                  .steps = 3 + BENCH_TRIES,
                                  .lr = 1e-5,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .weight_decay = 0.01,
                                  .clip = 1,
                                  .on_step = on_step,
                                  .user = &t};

    if (fd < 0)
        exit(1);
    close(fd);
    write_ids(path, s);
    int err = penstock_train(&o, &how, &work);
    unlink(path);
    if (err)
        exit(1);
    bench_row_flops(name(text, sizeof(text), "train 4 x 2048, AdamW", stages, devices),
                    bench_median(t.step, BENCH_TRIES),
                    3 * (bench_layer_flops(s, SEQUENCES, POSITIONS) + head), c);
    printf("%-44s %10.1f GiB\n", "  memory of the lanes", t.bytes / 0x1p30);
}
