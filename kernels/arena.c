/* A bump allocator over one block of a lane's memory. */
#include "kernels/arena.h"

#include <errno.h>
#include <stdint.h>

size_t arena_round(size_t bytes)
{
    return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

int arena_init(struct arena *a, struct kernel_ctx *ctx, size_t bytes)
{
    void *base = NULL;
    int err = bytes ? ctx->ops->mem_alloc(ctx, &base, bytes) : 0;
    if (err)
        return err;
    *a = (struct arena){.ctx = ctx, .base = base, .bytes = bytes};
    return 0;
}

struct arena arena_dry(void)
{
    return (struct arena){.bytes = SIZE_MAX};
}

void arena_fini(struct arena *a)
{
    if (a->base)
        a->ctx->ops->mem_free(a->ctx, a->base);
    *a = (struct arena){0};
}

int arena_alloc(struct arena *a, void **p, size_t bytes)
{
    size_t size = arena_round(bytes);
    if (size < bytes || size > a->bytes - a->used) {
        log_error("lane memory of %zu bytes is full: %zu used, %zu more wanted", a->bytes,
                  a->used, bytes);
        return -ENOMEM;
    }
    *p = a->base ? a->base + a->used : NULL;
    a->used += size;
    return 0;
}

void *arena_take(struct arena *a, int *err, size_t rows, size_t cols, size_t bytes)
{
    void *p = NULL;
    size_t n;
    if (*err)
        return NULL;
    *err = size_mul(&n, rows, cols);
    if (!*err)
        *err = size_mul(&n, n, bytes);
    if (!*err)
        *err = arena_alloc(a, &p, n);
    return p;
}
