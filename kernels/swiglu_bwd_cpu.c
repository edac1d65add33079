/* SwiGLU backwards. */
#include "kernels/train_cpu.h"

struct swiglu_bwd {
    const struct vec_ops *vec;
    float *dgate_up;
    const float *dy, *gate_up;
    int rows, F, row_tile;
};

static void swiglu_bwd_tile(void *arg, int tile, int thread)
{
    const struct swiglu_bwd *p = arg;
    int first = tile * p->row_tile, count = cpu_piece(p->rows, p->row_tile, tile);
    size_t F = (size_t)p->F;

    (void)thread;
    for (int r = first; r < first + count; r++) {
        const float *gate = p->gate_up + (size_t)r * 2 * F;
        float *dgate = p->dgate_up + (size_t)r * 2 * F;
        p->vec->swiglu_bwd(dgate, dgate + F, p->dy + (size_t)r * F, gate, gate + F, F);
    }
}

void swiglu_bwd_cpu(struct kernel_ctx *ctx, void *dgate_up, const void *dy,
                    const void *gate_up, int rows, int F)
{
    struct swiglu_bwd swiglu = {
        .vec = cpu_vec(ctx),
        .dgate_up = dgate_up,
        .dy = dy,
        .gate_up = gate_up,
        .rows = rows,
        .F = F,
        .row_tile = cpu_row_tile((size_t)F),
    };

    cpu_run(ctx, swiglu_bwd_tile, &swiglu, cpu_pieces(rows, swiglu.row_tile));
}
