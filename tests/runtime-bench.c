/* What penstock_bench rests on: runs that begin behind cached tokens, and cases that share what is loaded. */
#include <errno.h>
#include <string.h>

#include "runtime/generation.h"
#include "tests/test.h"

#define PROMPT 48
#define UBATCH 16
#define NEW    12

static struct penstock_options options(void)
{
    return (struct penstock_options){
        .model = TEST_DATA("reference/llama"), .stages = 2, .ubatch = UBATCH};
}

/* What is cached ends where a micro-batch does, so that the same arithmetic follows. */
static void test_cached(void **state)
{
    int32_t ids[2][PROMPT], first[2][NEW];
    struct penstock_prompt prompts[2] = {{ids[0], PROMPT}, {ids[1], PROMPT}};
    struct penstock_generate work = {.prompts = prompts,
                                     .n_prompts = 2,
                                     .n_predict = NEW,
                                     .ignore_eos = true,
                                     .sampling = {.repeat_penalty = 1}};
    struct penstock_options o = options();
    struct generation g;
    (void)state;

    for (int i = 0; i < 2 * PROMPT; i++)
        ids[i / PROMPT][i % PROMPT] = (i * i + 7) % 384;
    assert_int_equal(generation_open(&g, &o, &work), 0);
    assert_int_equal(generation_run(&g), 0);
    for (int q = 0; q < 2; q++) {
        memcpy(first[q], g.session.sequences[q].tokens, sizeof(first[q]));
        memset(g.session.sequences[q].tokens, -1, sizeof(first[q]));
        g.session.sequences[q].cached = 2 * UBATCH;
    }
    unsigned long passes = g.session.infer->passes;
    assert_int_equal(generation_run(&g), 0);
    passes = g.session.infer->passes - passes;
    for (int q = 0; q < 2; q++)
        assert_memory_equal(first[q], g.session.sequences[q].tokens, sizeof(first[q]));
    assert_int_equal(passes, 2 + 2 * (NEW - 1)); /* a piece of each prompt, then decode */
    generation_close(&g);
}

struct seen {
    int results, skipped, loads, last;
};

static void on_progress(void *user, const char *what, double done)
{
    struct seen *s = user;
    s->loads += !strcmp(what, "loading") && done >= 1;
}

static int on_result(void *user, const struct penstock_bench_result *r)
{
    struct seen *s = user;
    assert_int_equal(r->index, s->results);
    assert_string_equal(r->schedule, "forward");
    s->results++;
    s->skipped += r->skipped != NULL;
    if (!r->skipped) {
        assert_int_equal(r->n, 2);
        assert_true(r->seconds[0] > 0 && r->seconds[1] > 0);
        assert_true(r->bubble >= 0 && r->bubble < 1);
    }
    return r->index == s->last ? -ECANCELED : 0;
}

/* Loads once for all that run, whatever their sizes, past one that cannot; ends when it is told to. */
static void test_cases(void **state)
{
    const struct penstock_bench_case cases[] = {
        {.prompt = 40, .sequences = 1},
        {.generate = 5, .sequences = 7, .micro_batches = 3},
        {.prompt = 257, .sequences = 1},
        {.prompt = 9, .generate = 6, .depth = 100, .sequences = 3, .ubatch = 8},
        {.prompt = 128, .generate = 128, .sequences = 1},
    };
    struct seen seen = {.last = -1};
    struct penstock_options o = options();
    struct penstock_bench work = {.cases = cases,
                                  .n_cases = ARRAY_LEN(cases),
                                  .repetitions = 2,
                                  .on_result = on_result,
                                  .user = &seen};
    (void)state;

    o.layers = "2,2";
    o.progress = on_progress;
    o.user = &seen;
    assert_int_equal(penstock_bench(&o, &work), 0);
    assert_int_equal(seen.results, work.n_cases);
    assert_int_equal(seen.skipped, 1);
    assert_int_equal(seen.loads, 1);

    seen = (struct seen){.last = 1};
    assert_int_equal(penstock_bench(&o, &work), -ECANCELED);
    assert_int_equal(seen.results, 2);
}

static void test_refused(void **state)
{
    struct penstock_bench_case empty = {.depth = 4, .sequences = 1};
    struct seen seen = {.last = -1};
    struct penstock_options o = options();
    struct penstock_bench work = {.cases = &empty,
                                  .n_cases = 1,
                                  .repetitions = 1,
                                  .on_result = on_result,
                                  .user = &seen};
    (void)state;

    freopen("/dev/null", "w", stderr); /* the lines that say why */
    assert_int_equal(penstock_bench(&o, &work), -EINVAL);
    work.repetitions = 0;
    assert_int_equal(penstock_bench(&o, &work), -EINVAL);
    assert_int_equal(seen.results, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cached),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
