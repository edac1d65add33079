/* penstock score: how likely a model finds a text, and the logits of every position. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/prompts.h"
#include "cli/report.h"

enum { OPT_IDS = OPT_OWN, OPT_LOGITS };

static const struct option flags[] = {
    LANE_FLAGS,
    {"file", required_argument, NULL, 'f'},
    {"ids", required_argument, NULL, OPT_IDS},
    {"logits", required_argument, NULL, OPT_LOGITS},
    {0},
};

static const char usage_text[] =
    "usage: penstock score -m MODEL [-f FILE | --ids FILE.json] [flags]\n\n"
    "Prints the mean log-likelihood of the tokens after the first, and the perplexity.\n"
    "A text that is longer than the context is scored in pieces of that length.\n\n"
    "  -f, --file FILE    the text (default: standard input)\n"
    "      --ids FILE     a JSON list of lists of token ids instead of a text\n"
    "      --logits OUT   write the tensor logits (sequences, T, V) in fp32 as "
    "safetensors;\n"
    "                     the sequences must be of one length\n";

struct score {
    struct penstock_options options;
    const char *file, *ids, *logits_path;
    struct penstock_text *text;
    struct prompt_list list;
    struct progress progress;
    size_t vocabulary;
    float *all;     /* (list.n, T, V) or NULL */
    float **logits; /* (list.n) into it */
};

/* 0; 1: help was asked for; -EINVAL. */
static int parse(struct score *s, int argc, char **argv)
{
    int flag, err = 0;
    while (!err && (flag = next_flag(argc, argv, ":m:c:vhf:", flags)) >= 0) {
        if (flag == 'h')
            return 1;
        if (flag == '?')
            return -EINVAL;
        err = lane_flag(&s->options, flag, optarg);
        if (err != 1)
            continue;
        err = 0;
        *(flag == 'f' ? &s->file : flag == OPT_IDS ? &s->ids : &s->logits_path) = optarg;
    }
    if (err)
        return err;
    if (no_arguments(argc, argv) || !has_model(&s->options))
        return -EINVAL;
    return s->file && s->ids ? cli_error("give one of -f and --ids") : 0;
}

/* Cuts ids into sequences of at most `most`. */
static int add_pieces(struct prompt_list *list, const int32_t *ids, size_t n, size_t most)
{
    int err = 0;
    for (size_t i = 0; i < n && !err; i += most) {
        size_t count = n - i < most ? n - i : most;
        int32_t *piece = malloc(count * sizeof(*piece));
        if (!piece)
            return cli_no_memory("the text");
        memcpy(piece, ids + i, count * sizeof(*piece));
        err = prompts_add(list, piece, count);
    }
    return err;
}

static int collect_text(struct score *s, size_t max_context)
{
    size_t most = s->options.context ? s->options.context : max_context;
    char *text = NULL;
    int32_t *ids = NULL;
    size_t len, n = 0;
    int err = penstock_text_open(&s->text, s->options.model);
    if (!err)
        err = read_file(&text, &len, s->file ? s->file : "-");
    if (!err)
        err = penstock_encode(s->text, &ids, &n, text, len, false, true);
    if (!err)
        err = add_pieces(&s->list, ids, n, most);
    if (!err && n < 2)
        err = cli_error("a text of %zu token%s has nothing to predict", n,
                        n == 1 ? "" : "s");
    free(text);
    free(ids);
    return err;
}

/* A sequence of one token has nothing to predict; only logits can be asked of it. */
static int check_targets(const struct score *s)
{
    for (int i = 0; i < s->list.n; i++)
        if (s->list.items[i].n > 1 || s->logits_path)
            return 0;
    return cli_error("sequences of one token have nothing to predict");
}

static int take_logits(struct score *s)
{
    size_t T = s->list.items[0].n;
    for (int i = 1; i < s->list.n; i++)
        if (s->list.items[i].n != T)
            return cli_error("--logits: sequence %d has %zu tokens, sequence 0 has %zu: "
                             "they must be of one length",
                             i, s->list.items[i].n, T);
    s->logits = calloc(s->list.n, sizeof(*s->logits));
    s->all = calloc(s->list.n * T, s->vocabulary * sizeof(float));
    if (!s->logits || !s->all)
        return cli_no_memory("--logits");
    for (int i = 0; i < s->list.n; i++)
        s->logits[i] = s->all + i * T * s->vocabulary;
    return 0;
}

static int write_logits(const struct score *s)
{
    struct penstock_tensor t = {
        "logits", 3, {s->list.n, s->list.items[0].n, s->vocabulary}, s->all};
    return penstock_save(s->logits_path, &t, 1);
}

static int score(struct score *s)
{
    struct penstock_score_report report;
    struct penstock_model_info info;
    int err = check_output(s->logits_path);
    if (!err)
        err = penstock_model_query(&s->options, &info);
    if (err)
        return err;
    s->vocabulary = info.vocabulary;
    err = s->ids ? prompts_add_ids(&s->list, s->ids) : collect_text(s, info.max_context);
    if (!err)
        err = check_targets(s);
    if (!err && s->logits_path)
        err = take_logits(s);
    if (err)
        return err;
    err = penstock_score(&report, &s->options,
                         &(struct penstock_score){s->list.items, s->list.n, s->logits});
    progress_clear(&s->progress);
    if (err == -ETIMEDOUT)
        _exit(1);
    if (err)
        return err;
    if (s->logits_path)
        err = write_logits(s);
    if (!err) {
        printf("tokens %zu\npredicted %zu\nmean log-likelihood %.8f\nperplexity %.6f\n",
               report.run.prefill.tokens, report.positions, report.mean_logprob,
               report.perplexity);
        err = close_stdout();
    }
    if (!err) {
        report_stages(&report.run);
        report_speed(&report.run);
    }
    penstock_score_report_free(&report);
    return err;
}

int cmd_score(int argc, char **argv)
{
    struct score s = {0};
    progress_init(&s.progress);
    s.options.progress = progress_show;
    s.options.user = &s.progress;
    int err = parse(&s, argc, argv);
    if (err == 1) {
        printf("%s\n%s%s", usage_text, infer_flags_help, lane_flags_help);
        return close_stdout() != 0;
    }
    if (!err)
        err = score(&s);
    free(s.all);
    free(s.logits);
    prompts_free(&s.list);
    penstock_text_close(s.text);
    return err != 0;
}
