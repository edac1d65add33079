/* One block of a lane's memory, handed out in order and freed as a whole, so that nothing is allocated
 * on a device while it runs. */
#ifndef PENSTOCK_ARENA_H
#define PENSTOCK_ARENA_H

#include "kernels/kernel.h"

#define ARENA_ALIGN 256

struct arena {
    struct kernel_ctx *ctx; /* borrowed */
    uint8_t *base;
    size_t bytes, used;
};

/* Takes `bytes` from the lane's backend. -ENOMEM, logged. */
int arena_init(struct arena *a, struct kernel_ctx *ctx, size_t bytes);
void arena_fini(struct arena *a);

/* An arena without memory, which only counts what would be taken. */
struct arena arena_dry(void);

/* The next `bytes`, aligned to ARENA_ALIGN. -ENOMEM, logged, if the arena was made too small. */
int arena_alloc(struct arena *a, void **p, size_t bytes);

/* Room for rows * cols elements of `bytes` each, or NULL; the first error stays in *err, after which nothing is taken. */
void *arena_take(struct arena *a, int *err, size_t rows, size_t cols, size_t bytes);

/* What arena_alloc takes for `bytes`. */
size_t arena_round(size_t bytes);

#endif
