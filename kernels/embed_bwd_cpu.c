/* The token embedding backwards: rows summed into the table, token by token. */
#include "kernels/train_cpu.h"

struct embed_bwd {
    const struct vec_ops *vec;
    float *dtable;
    const int32_t *token, *start, *row;
    const float *dy;
    size_t C;
};

static void embed_bwd_token(void *arg, int u, int thread)
{
    const struct embed_bwd *p = arg;
    float *out = p->dtable + (size_t)p->token[u] * p->C;

    (void)thread;
    for (int32_t i = p->start[u]; i < p->start[u + 1]; i++)
        p->vec->add(out, p->dy + (size_t)p->row[i] * p->C, p->C);
}

void embed_bwd_cpu(struct kernel_ctx *ctx, float *dtable, const int32_t *token,
                   const int32_t *start, const int32_t *row, const void *dy, int unique,
                   int C)
{
    struct embed_bwd embed = {cpu_vec(ctx), dtable, token, start, row, dy, (size_t)C};

    cpu_run(ctx, embed_bwd_token, &embed, unique);
}
