/* SwiGLU: the gate through silu, times up. */
#include "kernels/cpu.h"

struct swiglu {
    const struct vec_ops *vec;
    float *y;
    const float *gate_up;
    int rows, F, row_tile;
};

static void swiglu_tile(void *arg, int tile, int thread)
{
    const struct swiglu *p = arg;
    int first = tile * p->row_tile, count = cpu_piece(p->rows, p->row_tile, tile);
    size_t F = (size_t)p->F;

    (void)thread;
    for (int r = first; r < first + count; r++) {
        const float *gate = p->gate_up + (size_t)r * 2 * F;
        p->vec->swiglu(p->y + (size_t)r * F, gate, gate + F, F);
    }
}

void swiglu_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *gate_up, int rows, int F)
{
    struct swiglu swiglu = {
        .vec = cpu_vec(ctx),
        .y = y,
        .gate_up = gate_up,
        .rows = rows,
        .F = F,
        .row_tile = cpu_row_tile((size_t)F),
    };

    cpu_run(ctx, swiglu_tile, &swiglu, cpu_pieces(rows, swiglu.row_tile));
}
