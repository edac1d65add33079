/* penstock bench: tokens per second of prompts and of generation, over every combination of what is given. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/bench_print.h"
#include "cli/cmd.h"
#include "cli/lists.h"
#include "cli/options.h"
#include "cli/progress.h"

#define MAX_CASES 100000

enum { OPT_PG = OPT_OWN, OPT_MICRO_BATCHES, OPT_OUTPUT_ERR };

static const struct option flags[] = {
    {"model", required_argument, NULL, 'm'},
    {"shape", required_argument, NULL, OPT_SHAPE},
    {"n-prompt", required_argument, NULL, 'p'},
    {"n-gen", required_argument, NULL, 'n'},
    {"pg", required_argument, NULL, OPT_PG},
    {"n-depth", required_argument, NULL, 'd'},
    {"batch", required_argument, NULL, 'b'},
    {"micro-batches", required_argument, NULL, OPT_MICRO_BATCHES},
    {"ub", required_argument, NULL, OPT_UBATCH},
    {"ubatch", required_argument, NULL, OPT_UBATCH},
    {"ubatch-size", required_argument, NULL, OPT_UBATCH},
    {"devices", required_argument, NULL, OPT_DEVICES},
    {"stages", required_argument, NULL, OPT_STAGES},
    {"split", required_argument, NULL, OPT_SPLIT},
    {"layers", required_argument, NULL, OPT_LAYERS},
    {"link", required_argument, NULL, OPT_LINK},
    {"order", required_argument, NULL, OPT_ORDER},
    {"dtype", required_argument, NULL, OPT_DTYPE},
    {"repetitions", required_argument, NULL, 'r'},
    {"output", required_argument, NULL, 'o'},
    {"oe", required_argument, NULL, OPT_OUTPUT_ERR},
    {"output-err", required_argument, NULL, OPT_OUTPUT_ERR},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char usage_text[] =
    "usage: penstock bench (-m MODEL | --shape NAME) [flags]\n\n"
    "Measures tokens per second, for every combination of the values that the flags "
    "give.\n"
    "A flag takes several: 1,2,4  1-8  128-1024+128  1-64*2, and may be repeated.\n\n"
    "  -m, --model PATH,..     Hugging Face folders, GGUF files\n"
    "      --shape NAME,..     random weights instead\n"
    "  -p, --n-prompt N        tests of a prompt of N tokens (default 512; 0: none)\n"
    "  -n, --n-gen N           tests of N new tokens (default 128; 0: none)\n"
    "  -pg P,N                 tests of a prompt and then new tokens (repeat, or "
    "P,N;P,N)\n"
    "  -d, --n-depth N         tokens in the KV cache before (default 0)\n"
    "  -b, --batch N           sequences at once (default 1)\n"
    "      --micro-batches M   groups of them that decode in turn (default: the stages)\n"
    "  -ub, --ubatch N         tokens of a prefill micro-batch (default 512)\n"
    "      --devices LIST      lanes, as with run; several lists: LIST;LIST, or repeat\n"
    "      --stages N          stages (default: one per lane)\n"
    "      --split R,R,..      layers per stage in these ratios; several: with ;\n"
    "      --layers N,N,..     exact layers per stage; several: with ;\n"
    "      --link, --order, --dtype KIND   as with run\n"
    "  -r, --repetitions N     runs that count, after one that does not (default 5)\n"
    "  -o, --output FORMAT     md, csv, json, jsonl or none (default md)\n"
    "  -oe, --output-err FORMAT    the same on stderr (default none)\n"
    "  -v, --verbose           say more on stderr\n"
    "  -h, --help              this text\n";

/* What a test measures. */
struct test {
    int prompt, generate;
};

struct bench {
    struct word_list models, shapes, devices, split, layers, dtype, link, order, pg;
    struct int_list stages, prompts, generates, depths, batches, micro_batches, ubatches;
    long repetitions;
    bool help;

    struct penstock_model_info *infos; /* (models, then shapes) */
    struct test *tests;                /* (n_tests) */
    int n_tests;
    struct penstock_bench_case *cases; /* (n_cases) */
    int n_cases;

    struct penstock_options options; /* of the configuration that runs */
    const struct penstock_model_info *info;
    pthread_mutex_t printing; /* held while results are printed */
    struct bench_printer out, err;
    struct progress progress;
    int ran; /* cases */
};

/* ---- The command line ----------------------------------------------------------------------------- */

static int list_flag(struct bench *b, int flag, const char *value)
{
    static const int most = 1 << 24;
    switch (flag) {
    case 'p':
        return int_list_add(&b->prompts, "-p", value, 0, most);
    case 'n':
        return int_list_add(&b->generates, "-n", value, 0, most);
    case 'd':
        return int_list_add(&b->depths, "-d", value, 0, most);
    case 'b':
        return int_list_add(&b->batches, "-b", value, 1, 65536);
    case OPT_MICRO_BATCHES:
        return int_list_add(&b->micro_batches, "--micro-batches", value, 1, 256);
    case OPT_UBATCH:
        return int_list_add(&b->ubatches, "--ubatch", value, 1, 1 << 20);
    case OPT_STAGES:
        return int_list_add(&b->stages, "--stages", value, 1, 65536);
    default:
        return parse_int(&b->repetitions, "-r", value, 1, 1000000);
    }
}

static int own_flag(struct bench *b, int flag, const char *value)
{
    switch (flag) {
    case 'm':
        return word_list_add(&b->models, "-m", value, ',');
    case OPT_SHAPE:
        return word_list_add(&b->shapes, "--shape", value, ',');
    case OPT_DEVICES:
        return word_list_add(&b->devices, "--devices", value, ';');
    case OPT_SPLIT:
        return word_list_add(&b->split, "--split", value, ';');
    case OPT_LAYERS:
        return word_list_add(&b->layers, "--layers", value, ';');
    case OPT_PG:
        return word_list_add(&b->pg, "-pg", value, ';');
    case OPT_DTYPE:
        return word_list_add(&b->dtype, "--dtype", value, ',');
    case OPT_LINK:
        return word_list_add(&b->link, "--link", value, ',');
    case OPT_ORDER:
        return word_list_add(&b->order, "--order", value, ',');
    case 'o':
        return bench_format_parse(&b->out.format, "-o", value);
    case OPT_OUTPUT_ERR:
        return bench_format_parse(&b->err.format, "-oe", value);
    case 'v':
        penstock_set_verbosity(2);
        return 0;
    default:
        return list_flag(b, flag, value);
    }
}

/* Flags of two letters may have one dash, as llama-bench has them. */
static void respell(int argc, char **argv)
{
    static char *const words[] = {"--pg", "--ub", "--oe"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (optind < argc && !strcmp(argv[optind], words[i] + 1))
            argv[optind] = words[i];
}

static int parse(struct bench *b, int argc, char **argv)
{
    int flag, err = 0;
    while (!err) {
        respell(argc, argv);
        flag = next_flag(argc, argv, ":m:p:n:d:b:r:o:vh", flags);
        if (flag < 0)
            break;
        if (flag == '?')
            return -EINVAL;
        b->help |= flag == 'h';
        if (!b->help)
            err = own_flag(b, flag, optarg);
    }
    if (err || b->help)
        return err;
    if (no_arguments(argc, argv))
        return -EINVAL;
    if (!b->models.n && !b->shapes.n)
        return cli_error("give -m MODEL or --shape NAME");
    return b->split.n && b->layers.n
               ? cli_error("--split and --layers exclude each other")
               : 0;
}

/* ---- The combinations ------------------------------------------------------------------------------ */

static int choices(int n)
{
    return n ? n : 1;
}

/* The last digit of *k, a number of mixed radix, chooses from a list; NULL, or 0, is what was not given. */
static const char *pick_word(const struct word_list *l, size_t *k)
{
    size_t digit = *k % choices(l->n);
    *k /= choices(l->n);
    return l->n ? l->items[digit] : NULL;
}

static int pick_int(const struct int_list *l, size_t *k, int otherwise)
{
    size_t digit = *k % choices(l->n);
    *k /= choices(l->n);
    return l->n ? (int)l->items[digit] : otherwise;
}

/* Takes configuration k; false if there are no more. The first axis changes last. */
static bool configure(struct bench *b, size_t k)
{
    struct penstock_options *o = &b->options;

    o->order = pick_word(&b->order, &k);
    o->link = pick_word(&b->link, &k);
    o->dtype = pick_word(&b->dtype, &k);
    o->layers = pick_word(&b->layers, &k);
    o->split = pick_word(&b->split, &k);
    o->stages = pick_int(&b->stages, &k, 0);
    o->devices = pick_word(&b->devices, &k);
    if (k >= (size_t)b->models.n + b->shapes.n)
        return false;
    bool is_model = k < (size_t)b->models.n;
    o->model = is_model ? b->models.items[k] : NULL;
    o->shape = is_model ? NULL : b->shapes.items[k - b->models.n];
    b->info = &b->infos[k];
    return true;
}

static int add_test(struct bench *b, int prompt, int generate)
{
    struct test *more = realloc(b->tests, (b->n_tests + 1) * sizeof(*more));
    if (!more)
        return cli_no_memory("the tests");
    b->tests = more;
    b->tests[b->n_tests] = (struct test){prompt, generate};
    b->n_tests += prompt + generate > 0;
    return 0;
}

static int add_pair(struct bench *b, const char *pair)
{
    struct int_list l = {0};
    int err = int_list_add(&l, "-pg", pair, 0, 1 << 24);
    if (!err && (l.n != 2 || strchr(pair, '-')))
        err = cli_error("-pg %s: expected two numbers, like 512,128", pair);
    if (!err)
        err = add_test(b, (int)l.items[0], (int)l.items[1]);
    int_list_fini(&l);
    return err;
}

static int make_tests(struct bench *b)
{
    int err = 0;
    if (!b->prompts.n)
        err = int_list_add(&b->prompts, "-p", "512", 0, 512);
    if (!b->generates.n && !err)
        err = int_list_add(&b->generates, "-n", "128", 0, 128);
    for (int i = 0; i < b->prompts.n && !err; i++)
        err = add_test(b, (int)b->prompts.items[i], 0);
    for (int i = 0; i < b->generates.n && !err; i++)
        err = add_test(b, 0, (int)b->generates.items[i]);
    for (int i = 0; i < b->pg.n && !err; i++)
        err = add_pair(b, b->pg.items[i]);
    if (err)
        return err;
    return b->n_tests ? 0 : cli_error("nothing to measure: -p and -n are 0");
}

/* Every test of a configuration. */
static int make_cases(struct bench *b)
{
    double n = (double)b->n_tests * choices(b->depths.n) * choices(b->batches.n) *
               choices(b->micro_batches.n) * choices(b->ubatches.n);

    if (n > MAX_CASES)
        return cli_error("%.0f combinations are more than %d", n, MAX_CASES);
    b->n_cases = (int)n;
    b->cases = calloc(b->n_cases, sizeof(*b->cases));
    if (!b->cases)
        return cli_no_memory("the tests");
    for (int i = 0; i < b->n_cases; i++) {
        struct penstock_bench_case *c = &b->cases[i];
        size_t k = i / b->n_tests;
        c->prompt = b->tests[i % b->n_tests].prompt;
        c->generate = b->tests[i % b->n_tests].generate;
        c->depth = pick_int(&b->depths, &k, 0);
        c->micro_batches = pick_int(&b->micro_batches, &k, 0);
        c->sequences = pick_int(&b->batches, &k, 1);
        c->ubatch = pick_int(&b->ubatches, &k, 512);
    }
    return 0;
}

/* Reads all models' sizes, so that a bad one is told before the first is measured. */
static int query_models(struct bench *b)
{
    int n = b->models.n + b->shapes.n, err = 0;

    b->infos = calloc(n, sizeof(*b->infos));
    if (!b->infos)
        return cli_no_memory("the models");
    for (int i = 0; i < n && !err; i++) {
        struct penstock_options o = {0};
        if (i < b->models.n)
            o.model = b->models.items[i];
        else
            o.shape = b->shapes.items[i - b->models.n];
        err = penstock_model_query(&o, &b->infos[i]);
    }
    return err;
}

/* The table leaves out what nobody asked for. */
static void choose_columns(struct bench *b)
{
    bool *hidden = b->out.hidden;

    hidden[COLUMN_DEVICES] = !b->devices.n;
    hidden[COLUMN_SPLIT] = !b->split.n;
    hidden[COLUMN_LAYERS] = !b->layers.n;
    hidden[COLUMN_DTYPE] = !b->dtype.n;
    hidden[COLUMN_ORDER] = !b->order.n;
    hidden[COLUMN_UBATCH] = !b->ubatches.n;
    hidden[COLUMN_BATCH] = !b->batches.n;
    memcpy(b->err.hidden, hidden, sizeof(b->err.hidden));
}

/* ---- Results --------------------------------------------------------------------------------------- */

static int on_result(void *user, const struct penstock_bench_result *r)
{
    struct bench *b = user;
    struct bench_row row = {&b->options, b->info, &b->cases[r->index], r};

    progress_clear(&b->progress);
    pthread_mutex_lock(&b->printing);
    int err = bench_print(&b->out, &row);
    if (!err)
        err = bench_print(&b->err, &row);
    pthread_mutex_unlock(&b->printing);
    b->ran += !r->skipped;
    return err ? err : close_stdout();
}

/* The lock stays taken: nothing is printed afterwards. */
static void print_end(struct bench *b, bool interrupted)
{
    pthread_mutex_lock(&b->printing);
    bench_print_end(&b->out, interrupted);
    bench_print_end(&b->err, interrupted);
}

static void interrupts(sigset_t *set)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct sigaction a;

    sigemptyset(set);
    for (int i = 0; i < 2; i++)
        if (!sigaction(signals[i], NULL, &a) && a.sa_handler != SIG_IGN)
            sigaddset(set, signals[i]);
}

/* Ends the program when it is interrupted, between two results. */
static void *wait_interrupt(void *user)
{
    struct bench *b = user;
    sigset_t set;
    int number;

    interrupts(&set);
    if (sigwait(&set, &number))
        return NULL;
    progress_clear(&b->progress);
    print_end(b, true);
    _exit(128 + number);
}

/* Interrupts go to a thread of their own; threads that are made later leave them to it. */
static int catch_interrupts(struct bench *b)
{
    pthread_t thread;
    sigset_t set;

    interrupts(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    if (pthread_create(&thread, NULL, wait_interrupt, b))
        return cli_no_memory("a thread");
    pthread_detach(thread);
    return 0;
}

static int run_all(struct bench *b)
{
    struct penstock_bench work = {.cases = b->cases,
                                  .n_cases = b->n_cases,
                                  .repetitions = (int)b->repetitions,
                                  .on_result = on_result,
                                  .user = b};
    int err = catch_interrupts(b);

    for (size_t k = 0; !err && configure(b, k); k++)
        err = penstock_bench(&b->options, &work);
    progress_clear(&b->progress);
    print_end(b, false);
    if (err == -ETIMEDOUT)
        _exit(1);
    if (!err)
        err = close_stdout();
    return !err && !b->ran ? cli_error("no test could run") : err;
}

static void free_all(struct bench *b)
{
    struct word_list *words[] = {&b->models, &b->shapes, &b->devices,
                                 &b->split,  &b->layers, &b->dtype,
                                 &b->link,   &b->order,  &b->pg};
    struct int_list *ints[] = {&b->stages,  &b->prompts,       &b->generates, &b->depths,
                               &b->batches, &b->micro_batches, &b->ubatches};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        word_list_fini(words[i]);
    for (size_t i = 0; i < sizeof(ints) / sizeof(ints[0]); i++)
        int_list_fini(ints[i]);
    free(b->infos);
    free(b->tests);
    free(b->cases);
}

int cmd_bench(int argc, char **argv)
{
    static struct bench b = {
        .repetitions = 5,
        .printing = PTHREAD_MUTEX_INITIALIZER,
        .out = {.format = BENCH_MD},
    };
    b.out.file = stdout;
    b.err.file = stderr;
    progress_init(&b.progress);
    b.options.progress = progress_show;
    b.options.user = &b.progress;
    int err = parse(&b, argc, argv);
    if (!err && b.help) {
        fputs(usage_text, stdout);
        err = close_stdout();
    } else if (!err) {
        choose_columns(&b);
        err = make_tests(&b);
        if (!err)
            err = make_cases(&b);
        if (!err)
            err = query_models(&b);
        if (!err)
            err = run_all(&b);
    }
    free_all(&b);
    return err != 0;
}
