/* CUDA contexts in a build without CUDA. */
#include "kernels/kernel.h"

#include <errno.h>

int kernel_cuda_create(struct kernel_ctx **ctx, int device, void *stream, int sm_count,
                       enum dtype dtype)
{
    (void)stream;
    (void)sm_count;
    (void)dtype;
    *ctx = NULL;
    log_error("lane cuda:%d: this build has no CUDA; configure it where nvcc is", device);
    return -ENODEV;
}
