/* penstock_score: how likely a model finds given tokens. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/batcher.h"

/* Adds the log-probabilities of a micro-batch to its sequence, in fp64 and in the order of positions. */
static void add_logprob(struct penstock_score_report *r, const struct batch *b,
                        int sequence)
{
    for (int i = 0; i < b->rows; i++)
        if (b->pack[b->at.target + i] >= 0) {
            r->logprob[sequence] += b->logprob[i];
            r->positions++;
        }
}

static int run_window(struct session *s, struct batch_set *set,
                      struct penstock_score_report *r, size_t *tokens)
{
    struct sched_plan plan;
    struct step *step = NULL;
    int err = sched_forward(&plan, s->machine.lanes.n, s->n_stages, s->stage_lane, set->n);

    if (!err)
        err = infer_step(s->infer, &plan, set->list, &step);
    for (int i = 0; step && i < set->n && !err; i++) {
        err = infer_wait(step, i);
        if (!err)
            add_logprob(r, &set->batches[i], set->sequence_of[i][0]);
        *tokens += set->batches[i].rows;
    }
    int ended = step ? step_end(step) : 0;
    if (ended != -ETIMEDOUT)
        sched_plan_fini(&plan);
    return err ? err : ended;
}

static int run(struct session *s, struct batcher *b, struct penstock_score_report *r)
{
    const struct infer_config *c = &s->infer->config;
    size_t tokens = 0, total = 0;
    double begin = time_now();
    int err = 0;

    for (int i = 0; i < s->n_sequences; i++)
        total += s->sequences[i].n_prompt;
    while (!err && !(err = batcher_prefill(b, &b->sets[0])) && b->sets[0].n) {
        err = run_window(s, &b->sets[0], r, &tokens);
        if (c->progress)
            c->progress(c->user, "scoring", (double)tokens / total);
    }
    double seconds = time_now() - begin;
    r->run.prefill =
        (struct penstock_phase_report){total, seconds, seconds > 0 ? total / seconds : 0};
    return err;
}

static void summarise(struct penstock_score_report *r)
{
    double sum = 0;
    for (int i = 0; i < r->n_sequences; i++)
        sum += r->logprob[i];
    r->mean_logprob = r->positions ? sum / r->positions : 0;
    r->perplexity = exp(-r->mean_logprob);
}

int penstock_score(struct penstock_score_report *report,
                   const struct penstock_options *options,
                   const struct penstock_score *work)
{
    struct session s;
    struct batcher b = {0};
    struct session_work w = {work->sequences, work->n_sequences, 0, true};

    *report = (struct penstock_score_report){0};
    int err = session_open(&s, options, &w);
    if (err)
        return err;
    report->logprob = calloc(work->n_sequences ? work->n_sequences : 1, sizeof(double));
    report->n_sequences = work->n_sequences;
    err = report->logprob ? batcher_init(&b, &s, NULL, work->logits)
                          : log_no_memory("the report");
    if (!err)
        err = run(&s, &b, report);
    if (!err)
        err = session_report(&s, &report->run);
    if (err == -ETIMEDOUT) /* workers hang and may still use all of this */
        return err;
    summarise(report);
    batcher_fini(&b);
    session_close(&s);
    if (err)
        penstock_score_report_free(report);
    return err;
}

void penstock_score_report_free(struct penstock_score_report *r)
{
    free(r->logprob);
    penstock_report_free(&r->run);
    *r = (struct penstock_score_report){0};
}
