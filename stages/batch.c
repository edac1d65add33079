/* The layout of a micro-batch's integers. */
#include "stages/batch.h"

struct batch_layout batch_layout(int rows, int segs, int samples, int table_ld)
{
    struct batch_layout at = {0};
    size_t n = 0;
    at.tokens = n, n += rows;
    at.index = n, n += rows;
    at.pos = n, n += rows;
    at.row_seg = n, n += rows;
    at.seg_row = n, n += segs + 1;
    at.table = n, n += (size_t)segs * table_ld;
    at.sample_index = n, n += samples;
    at.sample = n,
    n += (size_t)samples * (sizeof(struct kernel_sample_row) / sizeof(int32_t));
    at.target = n, n += rows;
    at.total = n;
    return at;
}

struct kernel_rows batch_rows(const struct batch *b, const int32_t *pack)
{
    return (struct kernel_rows){
        .rows = b->rows,
        .segs = b->segs,
        .max_rows = b->max_rows,
        .max_len = b->max_len,
        .table_ld = b->table_ld,
        .pos = pack + b->at.pos,
        .row_seg = pack + b->at.row_seg,
        .seg_row = pack + b->at.seg_row,
        .table = pack + b->at.table,
    };
}
