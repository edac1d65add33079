/* Micro-batches from sequences. */
#include "runtime/batcher.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"

static size_t align8(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* Host memory of one batch: pack, drawn, bad, recent, logprob. */
static size_t batch_bytes(const struct batch_limits *m)
{
    size_t pack = batch_layout(m->rows, m->segs, m->samples, m->table_ld).total;
    size_t recent = (size_t)m->samples * KERNEL_RECENT;
    size_t ints = pack + m->slots + 1 + recent + m->rows;
    return align8(ints * sizeof(int32_t));
}

static bool any_gpu(const struct session *s)
{
    return s->machine.lanes.lanes[0].spec.kind == LANE_CUDA ||
           s->machine.lanes.lanes[s->machine.lanes.n - 1].spec.kind == LANE_CUDA;
}

/* Runs on a lane's thread, so that the pages are near it. */
static int take_slab(void *arg)
{
    struct batcher *b = arg;
    size_t bytes = BATCHER_SETS * b->cap * b->batch_bytes;
    void *slab = NULL;
    int err = 0;
    if (b->pinned)
        err = device_host_alloc(&slab, bytes);
    else
        slab = malloc(bytes);
    if (!err && !slab)
        err = log_no_memory("micro-batches: lower --ubatch");
    if (!err)
        memset(slab, 0, bytes);
    b->slab = slab;
    return err;
}

static int init_set(struct batcher *b, struct batch_set *set)
{
    const struct batch_limits *m = &b->session->limits;
    int names = m->samples > m->segs ? m->samples : m->segs;
    set->batches = calloc(b->cap, sizeof(*set->batches));
    set->list = calloc(b->cap, sizeof(*set->list));
    set->sequence_of = calloc(b->cap, sizeof(*set->sequence_of));
    if (!set->batches || !set->list || !set->sequence_of)
        return log_no_memory("micro-batches");
    for (int i = 0; i < b->cap; i++) {
        set->list[i] = &set->batches[i];
        set->sequence_of[i] = calloc(names, sizeof(**set->sequence_of));
        if (!set->sequence_of[i])
            return log_no_memory("micro-batches");
    }
    return 0;
}

int batcher_init(struct batcher *b, struct session *s,
                 const struct kernel_sampling *sampling, float **logits)
{
    *b = (struct batcher){.session = s, .logits = logits, .pinned = any_gpu(s)};
    if (sampling)
        b->sampling = *sampling;
    b->cap = s->groups > BATCHER_WINDOW ? s->groups : BATCHER_WINDOW;
    b->batch_bytes = batch_bytes(&s->limits);
    int err = task_call(s->machine.lanes.lanes[0].worker, take_slab, b);
    for (int i = 0; i < BATCHER_SETS && !err; i++)
        err = init_set(b, &b->sets[i]);
    if (err)
        batcher_fini(b);
    return err;
}

void batcher_fini(struct batcher *b)
{
    for (int i = 0; i < BATCHER_SETS; i++) {
        struct batch_set *set = &b->sets[i];
        for (int j = 0; set->sequence_of && j < b->cap; j++)
            free(set->sequence_of[j]);
        free(set->sequence_of);
        free(set->list);
        free(set->batches);
    }
    if (b->pinned && b->slab)
        device_host_free(b->slab);
    else
        free(b->slab);
    *b = (struct batcher){0};
}

static void begin_sequence(struct batcher *b, int index)
{
    const struct session *s = b->session;
    b->next_sequence = index;
    b->next_token = index < s->n_sequences ? s->sequences[index].cached : 0;
}

void batcher_rewind(struct batcher *b)
{
    begin_sequence(b, 0);
}

/* Points batch i of a set at its host memory, for these sizes. */
static struct batch *begin_batch(struct batcher *b, struct batch_set *set, int rows,
                                 int segs, int samples, int table_ld)
{
    const struct batch_limits *m = &b->session->limits;
    struct batch *t = &set->batches[set->n];
    size_t index = (size_t)(set - b->sets) * b->cap + set->n;
    int32_t *p = (int32_t *)(b->slab + index * b->batch_bytes);

    *t = (struct batch){.rows = rows,
                        .segs = segs,
                        .samples = samples,
                        .table_ld = table_ld,
                        .at = batch_layout(rows, segs, samples, table_ld),
                        .sampling = b->sampling};
    t->pack = p;
    p += batch_layout(m->rows, m->segs, m->samples, m->table_ld).total;
    t->drawn = p, p += m->slots;
    t->bad = p, p += 1;
    t->recent = b->sampling.repeat_penalty != 1 ? p : NULL;
    p += (size_t)m->samples * KERNEL_RECENT;
    t->logprob = (float *)p;
    memset(t->pack, 0, t->at.total * sizeof(*t->pack));
    set->n++;
    return t;
}

/* A run of rows of one sequence. */
struct segment {
    int sequence;
    size_t first, count;
};

static size_t blocks_of(size_t tokens)
{
    return (tokens + KERNEL_KV_BLOCK - 1) / KERNEL_KV_BLOCK;
}

static void add_segment(struct batcher *b, struct batch *t, int seg, int row,
                        const struct segment *g)
{
    const struct sequence *q = &b->session->sequences[g->sequence];
    int length = (int)(g->first + g->count);

    for (size_t i = 0; i < g->count; i++) {
        t->pack[t->at.pos + row + i] = (int32_t)(g->first + i);
        t->pack[t->at.row_seg + row + i] = seg;
    }
    t->pack[t->at.seg_row + seg] = row;
    t->pack[t->at.seg_row + seg + 1] = row + (int)g->count;
    for (size_t i = 0; i < blocks_of(length); i++)
        t->pack[t->at.table + (size_t)seg * t->table_ld + i] =
            q->block_first + (int32_t)i;
    t->max_rows = (int)g->count > t->max_rows ? (int)g->count : t->max_rows;
    t->max_len = length > t->max_len ? length : t->max_len;
}

static struct kernel_sample_row *sample_rows(struct batch *t)
{
    return (struct kernel_sample_row *)(t->pack + t->at.sample);
}

/* Row `row` draws the token at position pos of a sequence. */
static void add_sample(struct batch *t, int i, int row, int sequence, size_t pos)
{
    size_t recent = pos < KERNEL_RECENT ? pos : KERNEL_RECENT;
    t->pack[t->at.sample_index + i] = row;
    sample_rows(t)[i] = (struct kernel_sample_row){.slot = sequence,
                                                   .pos = (int32_t)pos,
                                                   .stream = sequence,
                                                   .recent = (int32_t)recent};
}

/* The last tokens of a prompt, each where its position puts it. */
static void add_recent(struct batch *t, int i, const struct sequence *q)
{
    int32_t *ring = (int32_t *)t->recent + (size_t)i * KERNEL_RECENT;
    size_t from = q->n_prompt > KERNEL_RECENT ? q->n_prompt - KERNEL_RECENT : 0;
    for (size_t pos = from; pos < q->n_prompt; pos++)
        ring[pos % KERNEL_RECENT] = q->prompt[pos];
}

static void set_span(struct batcher *b, struct batch *t, int first, int last)
{
    const struct sequence *q = b->session->sequences;
    t->slot_first = first;
    t->slot_count = last - first + 1;
    t->group_first = q[first].group;
    t->group_count = q[last].group - q[first].group + 1;
}

/* The next piece: segments, rows, samples and blocks of the longest. False: no prompt is left. */
static bool cut_piece(struct batcher *b, struct segment *segs, int *n, int *rows,
                      int *samples, int *table_ld)
{
    const struct session *s = b->session;
    bool score = s->limits.score;

    *n = *rows = *samples = *table_ld = 0;
    while (b->next_sequence < s->n_sequences && *rows < (int)s->ubatch &&
           *n < s->limits.segs) {
        const struct sequence *q = &s->sequences[b->next_sequence];
        size_t left = q->n_prompt - b->next_token, room = s->ubatch - *rows;
        size_t count = left < room ? left : room;
        segs[*n] = (struct segment){b->next_sequence, b->next_token, count};
        int blocks = (int)blocks_of(b->next_token + count);
        *table_ld = blocks > *table_ld ? blocks : *table_ld;
        *rows += (int)count;
        b->next_token += count;
        *n += 1;
        if (b->next_token < q->n_prompt)
            break;
        *samples += !score && q->max_new > 0;
        begin_sequence(b, b->next_sequence + 1);
        if (score)
            break;
    }
    return *n > 0;
}

/* Scoring: the targets of a piece are the tokens that follow. */
static void add_targets(struct batcher *b, struct batch *t, const struct segment *g)
{
    const struct sequence *q = &b->session->sequences[g->sequence];
    for (size_t i = 0; i < g->count; i++) {
        size_t next = g->first + i + 1;
        t->pack[t->at.target + i] = next < q->n_prompt ? q->prompt[next] : -1;
    }
    if (b->logits)
        t->logits =
            b->logits[g->sequence] + g->first * b->session->machine.model->config.V;
}

static void fill_piece(struct batcher *b, struct batch *t, int *sequence_of,
                       const struct segment *segs)
{
    struct sequence *sequences = b->session->sequences;
    int row = 0, samples = 0;

    for (int i = 0; i < t->segs; i++) {
        struct sequence *q = &sequences[segs[i].sequence];
        add_segment(b, t, i, row, &segs[i]);
        memcpy(t->pack + t->at.tokens + row, q->prompt + segs[i].first,
               segs[i].count * sizeof(int32_t));
        row += (int)segs[i].count;
        if (b->session->limits.score) {
            sequence_of[i] = segs[i].sequence;
            add_targets(b, t, &segs[i]);
        } else if (segs[i].first + segs[i].count == q->n_prompt && q->max_new) {
            add_sample(t, samples, row - 1, segs[i].sequence, q->n_prompt);
            if (t->recent)
                add_recent(t, samples, q);
            sequence_of[samples++] = segs[i].sequence;
            q->drawn = 1;
        }
    }
    set_span(b, t, segs[0].sequence, segs[t->segs - 1].sequence);
    t->goal = b->session->limits.score ? BATCH_SCORE
              : samples                ? BATCH_SAMPLE
                                       : BATCH_NONE;
}

int batcher_prefill(struct batcher *b, struct batch_set *set)
{
    int segs, rows, samples, table_ld;
    struct segment *cut = calloc(b->session->limits.segs, sizeof(*cut));

    set->n = 0;
    if (!cut)
        return log_no_memory("micro-batches");
    while (set->n < BATCHER_WINDOW &&
           cut_piece(b, cut, &segs, &rows, &samples, &table_ld)) {
        struct batch *t = begin_batch(b, set, rows, segs, samples, table_ld);
        fill_piece(b, t, set->sequence_of[set->n - 1], cut);
    }
    free(cut);
    return 0;
}

static bool wants_token(const struct sequence *q)
{
    return !q->ended && q->drawn && q->drawn < q->max_new;
}

static void fill_group(struct batcher *b, struct batch *t, int *sequence_of, int first,
                       int last)
{
    int row = 0;
    for (int i = first; i <= last; i++) {
        struct sequence *q = &b->session->sequences[i];
        if (!wants_token(q))
            continue;
        size_t pos = q->n_prompt + q->drawn - 1;
        add_segment(b, t, row, row, &(struct segment){i, pos, 1});
        t->pack[t->at.index + row] = i;
        add_sample(t, row, row, i, pos + 1);
        sequence_of[row++] = i;
        q->drawn++;
    }
    t->recent = NULL;
    t->decode = true;
    t->goal = BATCH_SAMPLE;
    set_span(b, t, first, last);
}

void batcher_decode(struct batcher *b, struct batch_set *set)
{
    const struct session *s = b->session;
    set->n = 0;
    for (int first = 0, last; first < s->n_sequences; first = last + 1) {
        int rows = 0;
        size_t blocks = 0;
        for (last = first; last < s->n_sequences; last++) {
            const struct sequence *q = &s->sequences[last];
            if (q->group != s->sequences[first].group)
                break;
            if (!wants_token(q))
                continue;
            size_t n = blocks_of(q->n_prompt + q->drawn);
            blocks = n > blocks ? n : blocks;
            rows++;
        }
        last--;
        if (!rows)
            continue;
        struct batch *t = begin_batch(b, set, rows, rows, rows, (int)blocks);
        fill_group(b, t, set->sequence_of[set->n - 1], first, last);
    }
}
