/* Rotary position embedding, halves paired; backwards it is the rotation by the negative angle. */
#include "kernels/train_cpu.h"

struct rope {
    float *x;
    const float *cos_sin;
    const int32_t *pos;
    int rows, heads, D, row_tile;
    size_t ld;
    float sign; /* of the angle */
};

static void rotate(float *x, const float *cos_sin, int half, float sign)
{
    for (int i = 0; i < half; i++) {
        float c = cos_sin[2 * i], s = sign * cos_sin[2 * i + 1];
        float a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
    }
}

static void rope_tile(void *arg, int tile, int thread)
{
    const struct rope *p = arg;
    int first = tile * p->row_tile, count = cpu_piece(p->rows, p->row_tile, tile);

    (void)thread;
    for (int r = first; r < first + count; r++) {
        for (int h = 0; h < p->heads; h++)
            rotate(p->x + (size_t)r * p->ld + (size_t)h * p->D,
                   p->cos_sin + (size_t)p->pos[r] * p->D, p->D / 2, p->sign);
    }
}

static void rope(struct kernel_ctx *ctx, float *x, const float *cos_sin,
                 const int32_t *pos, int rows, int heads, int D, size_t ld, float sign)
{
    struct rope rope = {
        .x = x,
        .cos_sin = cos_sin,
        .pos = pos,
        .rows = rows,
        .heads = heads,
        .D = D,
        .ld = ld,
        .sign = sign,
        .row_tile = cpu_row_tile((size_t)heads * D),
    };

    cpu_run(ctx, rope_tile, &rope, cpu_pieces(rows, rope.row_tile));
}

void rope_fwd_cpu(struct kernel_ctx *ctx, void *x, const float *cos_sin,
                  const int32_t *pos, int rows, int heads, int D, size_t ld)
{
    rope(ctx, x, cos_sin, pos, rows, heads, D, ld, 1);
}

void rope_bwd_cpu(struct kernel_ctx *ctx, void *dx, const float *cos_sin,
                  const int32_t *pos, int rows, int heads, int D, size_t ld)
{
    rope(ctx, dx, cos_sin, pos, rows, heads, D, ld, -1);
}
