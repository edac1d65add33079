/* penstock train: train a model over the lanes, through any schedule. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/error.h"
#include "cli/files.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/train_log.h"

enum {
    OPT_DATA = OPT_OWN,
    OPT_SCHEDULE,
    OPT_MICRO_BATCHES,
    OPT_RECOMPUTE,
    OPT_DEADLINE,
    OPT_BATCH,
    OPT_SEQ,
    OPT_STEPS,
    OPT_LR,
    OPT_MIN_LR,
    OPT_WARMUP,
    OPT_DECAY,
    OPT_WEIGHT_DECAY,
    OPT_BETAS,
    OPT_EPS,
    OPT_CLIP,
    OPT_SEED,
    OPT_HELD_OUT,
    OPT_EVAL_EVERY,
    OPT_NO_PACK,
    OPT_SAVE,
    OPT_SAVE_EVERY,
    OPT_KEEP,
    OPT_RESUME,
    OPT_LOG,
};

static const struct option flags[] = {
    LANE_FLAGS,
    {"data", required_argument, NULL, OPT_DATA},
    {"schedule", required_argument, NULL, OPT_SCHEDULE},
    {"chunks", required_argument, NULL, 'V'},
    {"micro-batches", required_argument, NULL, OPT_MICRO_BATCHES},
    {"recompute", required_argument, NULL, OPT_RECOMPUTE},
    {"deadline", required_argument, NULL, OPT_DEADLINE},
    {"batch", required_argument, NULL, OPT_BATCH},
    {"seq", required_argument, NULL, OPT_SEQ},
    {"steps", required_argument, NULL, OPT_STEPS},
    {"lr", required_argument, NULL, OPT_LR},
    {"min-lr", required_argument, NULL, OPT_MIN_LR},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"decay", required_argument, NULL, OPT_DECAY},
    {"weight-decay", required_argument, NULL, OPT_WEIGHT_DECAY},
    {"betas", required_argument, NULL, OPT_BETAS},
    {"eps", required_argument, NULL, OPT_EPS},
    {"clip", required_argument, NULL, OPT_CLIP},
    {"seed", required_argument, NULL, OPT_SEED},
    {"held-out", required_argument, NULL, OPT_HELD_OUT},
    {"eval-every", required_argument, NULL, OPT_EVAL_EVERY},
    {"no-pack", no_argument, NULL, OPT_NO_PACK},
    {"save", required_argument, NULL, OPT_SAVE},
    {"save-every", required_argument, NULL, OPT_SAVE_EVERY},
    {"keep", required_argument, NULL, OPT_KEEP},
    {"resume", required_argument, NULL, OPT_RESUME},
    {"log", required_argument, NULL, OPT_LOG},
    {0},
};

static const char usage_text[] =
    "usage: penstock train -m MODEL --data FILE --steps N --save DIR [flags]\n"
    "       penstock train --resume DIR --data FILE --steps N --save DIR [flags]\n\n"
    "Trains with AdamW. DIR/checkpoint-STEP is a Hugging Face folder with the "
    "optimizer's\n"
    "state; ^C ends the step, saves and exits.\n\n"
    "      --data FILE        text; or documents: .jsonl with {\"text\"} or {\"ids\"}, "
    ".json "
    "with\n"
    "                         a list of lists of ids\n"
    "      --no-pack          every document, or paragraph, is a sequence of its own\n"
    "      --batch B          sequences of a step (default 8)\n"
    "      --seq T            predicted tokens of a sequence (default 512)\n"
    "      --steps N          steps of the whole run (default 100)\n"
    "      --held-out SHARE   of the data, for a loss that it is not trained on (default "
    "0)\n"
    "      --eval-every N     steps between those losses (default: before and after)\n"
    "      --schedule NAME    a schedule (penstock schedule list) or FILE.csv (default "
    "1f1b)\n"
    "      -V, --chunks V     stages per lane (default: the schedule's own)\n"
    "      --micro-batches M  micro-batches (default: one per lane)\n"
    "      --recompute WHAT   none, layer or selective (default none)\n"
    "      --deadline S       seconds that an op may take (default 600)\n"
    "      --lr X             learning rate (default 5e-5)\n"
    "      --min-lr X         at the end of the decay (default 0)\n"
    "      --warmup N         steps until the learning rate is reached (default 0)\n"
    "      --decay KIND       cosine, linear or none (default cosine)\n"
    "      --weight-decay X   of AdamW (default 0.01)\n"
    "      --betas B1,B2      of AdamW (default 0.9,0.999)\n"
    "      --eps X            of AdamW (default 1e-8)\n"
    "      --clip X           largest 2-norm of the gradient; 0: any (default 1)\n"
    "      --seed N           of the data's order and of a shape's weights\n"
    "      --save DIR         write checkpoints there\n"
    "      --save-every N     steps between them (default: at the end)\n"
    "      --keep N           newest checkpoints that stay (default 2)\n"
    "      --resume DIR       go on from a checkpoint, or from the newest of a folder\n"
    "      --log FILE         a JSON line per step; - is stdout\n";

struct train {
    struct penstock_options options;
    struct penstock_schedule schedule;
    struct penstock_train work;
    struct train_log log;
    struct penstock_train_step last;
    double held_out_before, held_out;
    double step_s; /* mean of the last steps, for the time left */
    struct progress progress;
};

/* ---- Flags ------------------------------------------------------------------------------------- */

static int int_flag(int *out, const char *flag, const char *value, long low, long high)
{
    long n = 0;
    int err = parse_int(&n, flag, value, low, high);
    *out = (int)n;
    return err;
}

static int parse_betas(struct penstock_train *w, const char *value)
{
    char first[64];
    const char *comma = strchr(value, ',');

    if (!comma || (size_t)(comma - value) >= sizeof(first))
        return cli_error("--betas %s: expected two numbers, like 0.9,0.999", value);
    snprintf(first, sizeof(first), "%.*s", (int)(comma - value), value);
    int err = parse_real(&w->beta1, "--betas", first, 0, 0.999999);
    return err ? err : parse_real(&w->beta2, "--betas", comma + 1, 0, 0.999999);
}

static int optimizer_flag(struct penstock_train *w, int flag, const char *value)
{
    switch (flag) {
    case OPT_LR:
        return parse_real(&w->lr, "--lr", value, 0, 1e6);
    case OPT_MIN_LR:
        return parse_real(&w->min_lr, "--min-lr", value, 0, 1e6);
    case OPT_WARMUP:
        return parse_int(&w->warmup, "--warmup", value, 0, 1L << 40);
    case OPT_DECAY:
        w->decay = value;
        return 0;
    case OPT_WEIGHT_DECAY:
        return parse_real(&w->weight_decay, "--weight-decay", value, 0, 1e6);
    case OPT_BETAS:
        return parse_betas(w, value);
    case OPT_EPS:
        return parse_real(&w->eps, "--eps", value, 1e-30, 1);
    case OPT_CLIP:
        return parse_real(&w->clip, "--clip", value, 0, 1e30);
    default:
        return 1;
    }
}

static int schedule_flag(struct penstock_schedule *s, int flag, const char *value)
{
    switch (flag) {
    case OPT_SCHEDULE:
        s->name = value;
        return 0;
    case 'V':
        return int_flag(&s->chunks, "-V", value, 1, 1024);
    case OPT_MICRO_BATCHES:
        return int_flag(&s->micro_batches, "--micro-batches", value, 1, 1 << 20);
    case OPT_RECOMPUTE:
        s->recompute = value;
        return 0;
    case OPT_DEADLINE:
        return parse_real(&s->deadline, "--deadline", value, 0.01, 1e6);
    default:
        return 1;
    }
}

static int data_flag(struct train *t, int flag, const char *value)
{
    struct penstock_train *w = &t->work;
    long seed = 0;
    int err;

    switch (flag) {
    case OPT_DATA:
        w->data = value;
        return 0;
    case OPT_NO_PACK:
        w->unpacked = true;
        return 0;
    case OPT_BATCH:
        return int_flag(&w->batch, "--batch", value, 1, 1 << 20);
    case OPT_SEQ:
        return int_flag(&w->positions, "--seq", value, 1, 1 << 24);
    case OPT_STEPS:
        return parse_int(&w->steps, "--steps", value, 1, 1L << 40);
    case OPT_HELD_OUT:
        return parse_real(&w->held_out, "--held-out", value, 0, 0.99);
    case OPT_EVAL_EVERY:
        return parse_int(&w->eval_every, "--eval-every", value, 1, 1L << 40);
    case OPT_SEED:
        err = parse_int(&seed, "--seed", value, 0, LONG_MAX);
        w->seed = t->options.seed = (uint64_t)seed;
        return err;
    default:
        return 1;
    }
}

static int save_flag(struct train *t, int flag, const char *value)
{
    struct penstock_train *w = &t->work;

    switch (flag) {
    case OPT_SAVE:
        w->save = value;
        return 0;
    case OPT_SAVE_EVERY:
        return parse_int(&w->save_every, "--save-every", value, 1, 1L << 40);
    case OPT_KEEP:
        return int_flag(&w->keep, "--keep", value, 1, 1 << 20);
    case OPT_RESUME:
        w->resume = value;
        return 0;
    default:
        t->log.name = value;
        return 0;
    }
}

static int take_flag(struct train *t, int flag, const char *value)
{
    int err = lane_flag(&t->options, flag, value);
    if (err == 1)
        err = schedule_flag(&t->schedule, flag, value);
    if (err == 1)
        err = optimizer_flag(&t->work, flag, value);
    if (err == 1)
        err = data_flag(t, flag, value);
    return err == 1 ? save_flag(t, flag, value) : err;
}

/* 0; 1: help was asked for; -EINVAL. */
static int parse(struct train *t, int argc, char **argv)
{
    int flag, err = 0;
    while (!err && (flag = next_flag(argc, argv, ":m:c:vhV:", flags)) >= 0) {
        if (flag == 'h')
            return 1;
        err = flag == '?' ? -EINVAL : take_flag(t, flag, optarg);
    }
    if (!err)
        err = no_arguments(argc, argv);
    if (err)
        return err;
    if (!t->work.data)
        return cli_error("no data: give --data FILE");
    if (t->work.save_every && !t->work.save)
        return cli_error("--save-every: give --save DIR as well");
    t->log.append = t->work.resume;
    if (!t->work.resume)
        return has_model(&t->options) ? 0 : -EINVAL;
    if (t->options.model || t->options.shape)
        return cli_error("--resume has its own model: leave out %s",
                         t->options.model ? "-m" : "--shape");
    return 0;
}

/* ---- While it runs ----------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

/* The second ^C ends at once. */
static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = stop, .sa_flags = SA_RESETHAND | SA_RESTART};
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

/* Told when the run is under way: what does not start has one line, which says why. */
static void note_unsaved(struct train *t)
{
    progress_clear(&t->progress);
    fprintf(stderr, "penstock: without --save the trained weights are not kept\n");
}

static int on_step(void *user, const struct penstock_train_step *s)
{
    struct train *t = user;
    char line[160];

    t->step_s = t->step_s > 0 ? 0.8 * t->step_s + 0.2 * s->step_s : s->step_s;
    long left = (long)(t->step_s * (double)(s->steps - s->step) + 0.5);
    snprintf(
        line, sizeof(line),
        "step %ld/%ld  loss %.4f  %.0f tokens/s  bubble %.1f %%  %ld:%02ld:%02ld left",
        s->step, s->steps, s->loss, s->tokens_per_s, 100 * s->bubble, left / 3600,
        left / 60 % 60, left % 60);
    if (!t->last.step && !t->work.save)
        note_unsaved(t);
    progress_line(&t->progress, line);
    train_log_step(&t->log, s);
    t->last = *s;
    if (!isnan(s->held_out_loss_before))
        t->held_out_before = s->held_out_loss_before;
    if (!isnan(s->held_out_loss))
        t->held_out = s->held_out_loss;
    return stopped;
}

static void on_save(void *user, long step, const char *path)
{
    struct train *t = user;
    (void)step;
    progress_clear(&t->progress);
    fprintf(stderr, "saved %s\n", path);
}

/* ---- Before and after -------------------------------------------------------------------------- */

/* The lanes' bytes are borrowed for the time of a step alone: the log has them. */
static int print_results(const struct train *t)
{
    if (t->last.step && !train_log_is_stdout(&t->log)) {
        printf("step %ld\nloss %.9g\n", t->last.step, t->last.loss);
        if (!isnan(t->held_out_before))
            printf("held_out_loss_before %.9g\n", t->held_out_before);
        if (!isnan(t->held_out))
            printf("held_out_loss %.9g\n", t->held_out);
    }
    return close_stdout();
}

static int train(struct train *t)
{
    const char *const inputs[] = {t->work.data, t->options.model, t->options.shape,
                                  t->schedule.name};
    int err = train_log_check(&t->log, inputs, sizeof(inputs) / sizeof(*inputs));

    if (err)
        return err;
    catch_signals();
    err = penstock_train(&t->options, &t->schedule, &t->work);
    progress_clear(&t->progress);
    int logged = train_log_close(&t->log);
    if (err == -ETIMEDOUT)
        _exit(1);
    int printed = err && !t->last.step ? 0 : print_results(t);
    return err ? err : logged ? logged : printed;
}

int cmd_train(int argc, char **argv)
{
    struct train t = {
        .work = {.batch = 8,
                 .positions = 512,
                 .steps = 100,
                 .lr = 5e-5,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .eps = 1e-8,
                 .weight_decay = 0.01,
                 .clip = 1,
                 .on_step = on_step,
                 .on_save = on_save},
        .held_out_before = NAN,
        .held_out = NAN,
    };
    progress_init(&t.progress);
    t.options.progress = progress_show;
    t.options.user = &t.progress;
    t.work.user = &t;
    t.log.progress = &t.progress;
    int err = parse(&t, argc, argv);
    if (err == 1) {
        printf("%s\n%s", usage_text, lane_flags_help);
        return close_stdout() != 0;
    }
    return (err ? err : train(&t)) != 0;
}
