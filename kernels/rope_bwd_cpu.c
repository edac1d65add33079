/* Rotary position embedding backwards: the rotation by the negative angle. */
#include "kernels/train_cpu.h"

struct rope_bwd {
    float *dx;
    const float *cos_sin;
    const int32_t *pos;
    int rows, heads, D, row_tile;
    size_t ld;
};

static void rotate_back(float *x, const float *cos_sin, int half)
{
    for (int i = 0; i < half; i++) {
        float c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
        float a = x[i], b = x[i + half];
        x[i] = a * c + b * s;
        x[i + half] = b * c - a * s;
    }
}

static void rope_bwd_tile(void *arg, int tile, int thread)
{
    const struct rope_bwd *p = arg;
    int first = tile * p->row_tile, count = cpu_piece(p->rows, p->row_tile, tile);

    (void)thread;
    for (int r = first; r < first + count; r++) {
        for (int h = 0; h < p->heads; h++)
            rotate_back(p->dx + (size_t)r * p->ld + (size_t)h * p->D,
                        p->cos_sin + (size_t)p->pos[r] * p->D, p->D / 2);
    }
}

void rope_bwd_cpu(struct kernel_ctx *ctx, void *dx, const float *cos_sin,
                  const int32_t *pos, int rows, int heads, int D, size_t ld)
{
    struct rope_bwd rope = {
        .dx = dx,
        .cos_sin = cos_sin,
        .pos = pos,
        .rows = rows,
        .heads = heads,
        .D = D,
        .ld = ld,
        .row_tile = cpu_row_tile((size_t)heads * D),
    };

    cpu_run(ctx, rope_bwd_tile, &rope, cpu_pieces(rows, rope.row_tile));
}
