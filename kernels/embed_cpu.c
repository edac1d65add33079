/* Rows picked by index: the token embedding and gather. */
#include "kernels/cpu.h"

#include <string.h>

void embed_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *table,
                   const int32_t *tokens, const int32_t *index, int rows, int C)
{
    (void)ctx;
    for (int r = 0; r < rows; r++) {
        size_t token = (size_t)tokens[index ? index[r] : r];
        memcpy((float *)y + (size_t)r * C, (const float *)table + token * C,
               (size_t)C * sizeof(float));
    }
}

void gather_fwd_cpu(struct kernel_ctx *ctx, void *y, const void *x, const int32_t *index,
                    int rows, int C)
{
    (void)ctx;
    for (int r = 0; r < rows; r++)
        memcpy((float *)y + (size_t)r * C, (const float *)x + (size_t)index[r] * C,
               (size_t)C * sizeof(float));
}
