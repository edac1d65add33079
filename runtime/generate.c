/* penstock_generate: prompts in, tokens out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/generation.h"

/* A step in flight and what it was made of. */
struct flight {
    struct step *step;
    struct sched_plan plan;
    struct batch_set *set;
    bool prefill;
};

static bool is_eos(const struct generation *g, int32_t token)
{
    for (int i = 0; i < g->n_eos; i++)
        if (g->eos[i] == token)
            return true;
    return false;
}

/* A sequence got a token; one that had ended meanwhile ignores it. */
static void take_token(struct generation *g, int index, int32_t token)
{
    struct sequence *q = &g->session.sequences[index];
    if (q->ended || g->stopped)
        return;
    if (!q->n) {
        g->waiting--;
        if (!g->first_token)
            g->first_token = time_now();
        if (!g->waiting)
            g->prefill_end = time_now();
    } else {
        g->decoded++;
    }
    q->tokens[q->n++] = token;
    q->ended = q->n == q->max_new || (!g->work->ignore_eos && is_eos(g, token));
    if (g->work->on_token && g->work->on_token(g->work->user, index, token))
        g->stopped = true;
    if (q->ended && g->work->on_end)
        g->work->on_end(g->work->user, index);
}

static void report_prefill(const struct generation *g, size_t tokens, size_t total)
{
    const struct infer_config *c = &g->session.infer->config;
    if (c->progress)
        c->progress(c->user, "prefill", (double)tokens / total);
}

/* Builds and submits the next step: pieces of prompts while there are any, then a round of decode. set->n 0:
 * nothing is left to do. */
static int launch(struct generation *g, struct flight *f, struct batch_set *set)
{
    struct session *s = &g->session;
    int err;

    *f = (struct flight){.set = set, .prefill = true};
    err = batcher_prefill(&g->batcher, set);
    if (!err && !set->n && !g->stopped) {
        f->prefill = false;
        batcher_decode(&g->batcher, set);
    }
    if (err || !set->n)
        return err;
    err = sched_forward(&f->plan, s->machine.lanes.n, s->n_stages, s->stage_lane, set->n);
    if (!err)
        err = infer_step(s->infer, &f->plan, set->list, &f->step);
    if (err)
        sched_plan_fini(&f->plan);
    return err;
}

/* Takes a step's results as they come, micro-batch by micro-batch, then ends it. */
static int land(struct generation *g, struct flight *f, size_t *prefilled, size_t total)
{
    int err = 0;
    for (int i = 0; i < f->set->n && !err; i++) {
        const struct batch *b = &f->set->batches[i];
        err = infer_wait(f->step, i);
        for (int r = 0; r < b->samples && !err; r++) {
            int q = f->set->sequence_of[i][r];
            take_token(g, q, b->drawn[q - b->slot_first]);
        }
        *prefilled += f->prefill ? (size_t)b->rows : 0;
        if (f->prefill && !err)
            report_prefill(g, *prefilled, total);
    }
    int ended = step_end(f->step);
    if (ended != -ETIMEDOUT)
        sched_plan_fini(&f->plan);
    f->step = NULL;
    return err ? err : ended;
}

/* As if nothing had run. */
static void reset(struct generation *g)
{
    struct session *s = &g->session;

    g->first_token = g->prefill_end = 0;
    g->decoded = 0;
    g->waiting = 0;
    batcher_rewind(&g->batcher);
    for (int i = 0; i < s->n_sequences; i++) {
        struct sequence *q = &s->sequences[i];
        q->n = q->drawn = 0;
        q->ended = false;
        g->waiting += q->max_new > 0;
    }
}

/* Keeps two steps in flight, so that lanes find the next op waiting for them. */
int generation_run(struct generation *g)
{
    struct flight flights[BATCHER_SETS] = {0};
    size_t prefilled = 0, total = g->prompt_tokens;
    int err = 0, at = 0;

    reset(g);
    g->begin = time_now();
    for (int i = 0; i < BATCHER_SETS && !err; i++)
        err = launch(g, &flights[i], &g->batcher.sets[i]);
    while (flights[at].step) {
        int landed = land(g, &flights[at], &prefilled, total);
        err = err ? err : landed;
        if (err == -ETIMEDOUT)
            return err;
        if (!err)
            err = launch(g, &flights[at], &g->batcher.sets[at]);
        at = (at + 1) % BATCHER_SETS;
    }
    g->end = time_now();
    if (!g->prefill_end)
        g->prefill_end = g->end;
    return err;
}

static void report_phase(struct penstock_phase_report *p, size_t tokens, double seconds)
{
    p->tokens = tokens;
    p->seconds = seconds;
    p->tokens_per_s = seconds > 0 ? tokens / seconds : 0;
}

/* Moves the sequences' tokens into the report. */
static int report(struct generation *g, struct penstock_report *r)
{
    struct session *s = &g->session;
    int err = session_report(s, r);

    r->sequences = calloc(s->n_sequences ? s->n_sequences : 1, sizeof(*r->sequences));
    if (err || !r->sequences)
        return err ? err : log_no_memory("the report");
    r->n_sequences = s->n_sequences;
    for (int i = 0; i < s->n_sequences; i++) {
        struct sequence *q = &s->sequences[i];
        r->sequences[i] = (struct penstock_sequence){q->n_prompt, q->tokens, q->n};
        q->tokens = NULL;
    }
    report_phase(&r->prefill, g->prompt_tokens, g->prefill_end - g->begin);
    report_phase(&r->decode, g->decoded, g->end - g->prefill_end);
    r->ttft_s = g->first_token ? g->first_token - g->begin : 0;
    return 0;
}

int generation_open(struct generation *g, const struct penstock_options *options,
                    const struct penstock_generate *work)
{
    struct kernel_sampling sampling = {
        .temperature = work->sampling.temperature,
        .top_p = work->sampling.top_p,
        .min_p = work->sampling.min_p,
        .repeat_penalty = work->sampling.repeat_penalty,
        .top_k = work->sampling.top_k,
        .seed = work->sampling.seed,
    };
    struct session_work w = {work->prompts, work->n_prompts, work->n_predict, false};

    *g = (struct generation){.work = work};
    int err = session_open(&g->session, options, &w);
    if (err)
        return err;
    const struct model_config *c = &g->session.machine.model->config;
    g->n_eos = c->n_eos;
    memcpy(g->eos, c->eos, sizeof(g->eos));
    for (int i = 0; i < g->session.n_sequences; i++)
        g->prompt_tokens += g->session.sequences[i].n_prompt;
    err = batcher_init(&g->batcher, &g->session, &sampling, NULL);
    if (err)
        session_close(&g->session);
    return err;
}

void generation_close(struct generation *g)
{
    batcher_fini(&g->batcher);
    session_close(&g->session);
}

int penstock_generate(struct penstock_report *out, const struct penstock_options *options,
                      const struct penstock_generate *work)
{
    struct generation g;

    *out = (struct penstock_report){0};
    int err = generation_open(&g, options, work);
    if (err)
        return err;
    err = generation_run(&g);
    if (!err)
        err = report(&g, out);
    if (err == -ETIMEDOUT)
        return err;
    generation_close(&g);
    if (err)
        penstock_report_free(out);
    return err;
}

void penstock_report_free(struct penstock_report *r)
{
    for (int i = 0; i < r->n_sequences; i++)
        free(r->sequences[i].tokens);
    free(r->sequences);
    free(r->stages);
    *r = (struct penstock_report){0};
}
