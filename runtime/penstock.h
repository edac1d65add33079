/* Penstock's public interface: run a decoder model cut into stages, each on its own lane.
 *
 * Functions return 0 or a negative errno after one line on stderr that says what was wrong, unless
 * their comment says otherwise. Objects are not thread-safe. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

const char *penstock_version(void);

/* 0 errors, 1 warnings (default), 2 information, 3 debug. */
void penstock_set_verbosity(int level);

/* ---- Text and ids, without lanes ------------------------------------------------------------- */

struct penstock_text; /* a model's tokenizer and chat form */

/* model NULL: neither of both. */
int penstock_text_open(struct penstock_text **out, const char *model);
void penstock_text_close(struct penstock_text *t);
/* Whether the model has a tokenizer; without one the functions below say so and return -ENOENT. */
bool penstock_text_known(const struct penstock_text *t);
/* special: recognise special tokens in the text; bos: put the sequence start before it if the model wants one.
 * *ids (*n) is freed by the caller. */
int penstock_encode(struct penstock_text *t, int32_t **ids, size_t *n, const char *text,
                    size_t len, bool special, bool bos);
/* *text (*len), terminated, is freed by the caller. special: keep special tokens. */
int penstock_decode(struct penstock_text *t, char **text, size_t *len, const int32_t *ids,
                    size_t n, bool special);
/* The user's text in the model's chat form, opened for the answer; system NULL: the model's own default. */
int penstock_chat(struct penstock_text *t, char **prompt, const char *system,
                  const char *user);

/* Decodes a stream of ids as they come. next returns the bytes that are certain now (whole UTF-8
 * characters), flush what is left; all of them together equal penstock_decode without special tokens.
 * *text is valid until the next call. */
struct penstock_stream;
int penstock_stream_open(struct penstock_stream **out, const struct penstock_text *t);
void penstock_stream_close(struct penstock_stream *s);
int penstock_stream_next(struct penstock_stream *s, int32_t id, const char **text,
                         size_t *len);
int penstock_stream_flush(struct penstock_stream *s, const char **text, size_t *len);

/* ---- A model on lanes --------------------------------------------------------------------------- */

struct penstock_options {
    const char *model; /* Hugging Face folder or GGUF file, or NULL for a shape */
    const char *
        shape; /* random weights: "llama-1b", "llama-8b", "smollm2-135m", or a config.json */
    const char *
        devices; /* "cuda:0,cuda:1", "cuda:0/4", "cpu:0,cpu:1-3"; NULL: every GPU, else CPU lanes */
    int stages;         /* 0: one per lane */
    const char *split;  /* ratios of layers per stage, "3,1"; NULL: by cost */
    const char *layers; /* exact layers per stage, "12,18" */
    int micro_batches;  /* of decode; 0: one per stage, at most one per sequence */
    int ubatch;         /* rows (tokens) of a prefill micro-batch; 0: 512 */
    const char *link;   /* "auto", "nccl", "copy", "host" */
    const char *order;  /* "strict", "prio", "free" */
    const char *dtype;  /* "auto", "fp32", "bf16" */
    uint64_t seed;      /* of a shape's random weights */
    size_t context;     /* longest sequence, 0: what the prompts and n_predict need */
    void (*progress)(void *user, const char *what, double done); /* 0..1; NULL: none */
    void *user;
};

struct penstock_sampling {
    float temperature, top_p, min_p, repeat_penalty;
    int top_k;
    uint64_t seed;
};

struct penstock_prompt {
    const int32_t *ids; /* (n) */
    size_t n;
};

struct penstock_generate {
    const struct penstock_prompt *prompts; /* (n_prompts) */
    int n_prompts;
    int n_predict; /* new tokens per sequence; -1: to the end of the context */
    bool ignore_eos;
    struct penstock_sampling sampling;
    /* A token of a sequence, in the sequence's own order; NULL: none. Returning non-zero ends the run. */
    int (*on_token)(void *user, int sequence, int32_t token);
    /* A sequence will get no more tokens; NULL: none. */
    void (*on_end)(void *user, int sequence);
    void *user;
};

/* Tokens that a sequence got, the eos included if it ended by one. */
struct penstock_sequence {
    size_t prompt_tokens;
    int32_t *tokens; /* (n) */
    size_t n;
};

struct penstock_stage_report {
    int index;
    char lane[64];
    int first, last; /* layers, both included */
    size_t bytes_predicted, bytes_measured;
    double busy; /* share of the run that the stage was computing */
};

struct penstock_phase_report {
    size_t tokens;
    double seconds, tokens_per_s;
};

struct penstock_report {
    struct penstock_stage_report *stages; /* (n_stages) */
    int n_stages, micro_batches;
    char link[16];
    struct penstock_phase_report prefill, decode;
    double ttft_s;
    double bubble; /* idle / (lanes x time), prefill and decode together */
    struct penstock_sequence *sequences; /* (n_sequences) */
    int n_sequences;
};

/* Loads the model for this work (the partition and the KV cache depend on it), runs it, reports. *report is freed
 * with penstock_report_free. */
int penstock_generate(struct penstock_report *report,
                      const struct penstock_options *options,
                      const struct penstock_generate *work);
void penstock_report_free(struct penstock_report *report);

/* A measurement: of `sequences` at once, each with `depth` tokens in the KV cache already, the time that `prompt` tokens
 * and then `generate` new ones take; one of both may be 0. */
struct penstock_bench_case {
    int prompt, generate, depth;
    int sequences;
    int micro_batches, ubatch; /* in place of the options' */
};

struct penstock_bench_result {
    int index; /* of the case */
    const char
        *skipped; /* why it did not run; NULL: it ran, and what follows is filled */
    const double *seconds; /* (n) of every repetition */
    int n, micro_batches;
    const char *link;
    double bubble;        /* idle / (lanes x time), mean of the repetitions */
    const char *schedule; /* this and what follows is always filled */
    int stages;
    const char *backend;   /* "CPU", "CUDA" or "CUDA,CPU" */
    const char *cpu, *gpu; /* their names; "" if unknown, or if no lane is one */
};

struct penstock_bench {
    const struct penstock_bench_case *cases; /* (n_cases) */
    int n_cases, repetitions;
    /* Called for every case in its turn; *result lives as long as the call. Non-zero ends the benchmark. */
    int (*on_result)(void *user, const struct penstock_bench_result *result);
    void *user;
};

/* Measures every case that fits, after one run that is not counted, on random ids. A case runs on the stages that
 * penstock_generate would cut for it; cases in a row that have the same stages and fit together share what is loaded.
 * What on_result returned, if that was not 0; -ETIMEDOUT: an op does not end, and the process should. */
int penstock_bench(const struct penstock_options *options,
                   const struct penstock_bench *work);

struct penstock_score {
    const struct penstock_prompt *sequences; /* (n_sequences) */
    int n_sequences;
    float **logits; /* (n_sequences) of (T, V) each, filled if not NULL */
};

struct penstock_score_report {
    double *logprob; /* (n_sequences): sum over positions 1 .. T-1 */
    int n_sequences;
    size_t positions; /* predicted positions of all sequences */
    double mean_logprob, perplexity;
    struct penstock_report run; /* stages, prefill, bubble */
};

int penstock_score(struct penstock_score_report *report,
                   const struct penstock_options *options,
                   const struct penstock_score *work);
void penstock_score_report_free(struct penstock_score_report *report);

/* ---- Files --------------------------------------------------------------------------------------- */

/* Writes a file by a temporary name beside it: whole, or not at all. Links are followed, and a file that
 * is replaced passes on its permissions. What is no regular file, such as a pipe, and what /dev/stdout
 * stands for are written in place. write returns non-zero, with errno, if it failed. */
int penstock_write(const char *path, int (*write)(FILE *f, void *arg), void *arg);

/* 0 if penstock_write and penstock_save can begin: asked before work that takes long. */
int penstock_can_write(const char *path);

struct penstock_tensor {
    const char *name;
    int n_dims;
    size_t dims[4];
    const float *data;
};

/* Writes a safetensors file as penstock_write does. */
int penstock_save(const char *path, const struct penstock_tensor *tensors, size_t n);

/* ---- Training ------------------------------------------------------------------------------------- */

/* How a step is scheduled over the lanes. */
struct penstock_schedule {
    const char *name;      /* "1f1b", ... or FILE.csv; NULL: 1f1b */
    int chunks;            /* stages per lane; 0: the schedule's own */
    int micro_batches;     /* 0: one per lane */
    const char *recompute; /* "none", "layer", "selective"; NULL: none */
    double deadline; /* seconds without any op ending until the run is given up; 0: 600 */
};

struct penstock_gradient {
    char name[128];    /* of the parameter in Hugging Face files */
    size_t rows, cols; /* cols 1: a vector */
    float *values;     /* (rows, cols) */
};

struct penstock_grad_report {
    double loss, grad_norm;
    struct penstock_gradient *gradients; /* (n) */
    size_t n;
    struct penstock_report run; /* stages, bubble */
};

/* The mean cross-entropy of the next token over n sequences, and its gradients. *report is freed with
 * penstock_grad_report_free. */
int penstock_grad(struct penstock_grad_report *report,
                  const struct penstock_options *options,
                  const struct penstock_schedule *schedule,
                  const struct penstock_prompt *sequences, int n);
void penstock_grad_report_free(struct penstock_grad_report *report);

/* A step that has been made. */
struct penstock_train_step {
    long step, steps; /* from 1 on, and of the whole run */
    double loss;      /* mean cross-entropy of the step's targets, before the update */
    double grad_norm; /* 2-norm of the gradient, before clipping */
    double lr;
    double tokens_per_s, step_s; /* of the whole step, update included */
    /* Idle / (lanes x time) and the time of the plan's ops: measured, and as simulated with this run's mean op times
     * and hops that take none. */
    double bubble, bubble_predicted, plan_s, plan_s_predicted;
    /* Of the part that is not trained on, after this step and, at the run's first, before it; NAN: not computed. */
    double held_out_loss, held_out_loss_before;
    const char *const *lanes;                        /* (n_lanes) their names */
    const size_t *lane_bytes, *lane_bytes_predicted; /* (n_lanes) memory that is in use */
    int n_lanes;
};

struct penstock_train {
    const char *
        data; /* text, or documents in .jsonl or .json: {"text"}, {"ids"}, lists of ids */
    bool
        unpacked; /* every document is a sequence, else they are packed one behind the other */
    int batch;     /* sequences of a step */
    int positions; /* predicted positions of a sequence: it has a token more */
    long steps;    /* of the whole run, those before a resume included */
    double lr, min_lr;
    long warmup;       /* steps in which the learning rate rises to lr */
    const char *decay; /* from lr to min_lr: "cosine", "linear", "none"; NULL: cosine */
    double beta1, beta2, eps, weight_decay; /* AdamW */
    double clip;                            /* largest 2-norm of the gradient; 0: any */
    uint64_t seed;   /* of the data's order; 0: on a resume the first run's */
    double held_out; /* share of the data that is not trained on, [0, 1) */
    long
        eval_every; /* steps between losses of that part; 0: only before the first step and after the last */
    const char *save; /* folder of checkpoints; NULL: none are written */
    long save_every;  /* steps; 0: only at the end */
    int keep;         /* newest checkpoints that stay; 0: 2 */
    const char *
        resume; /* a checkpoint, or a folder whose newest is meant; it takes the place of options' model */
    /* A step is done; non-zero: save and end. NULL: none. */
    int (*on_step)(void *user, const struct penstock_train_step *step);
    /* A checkpoint of so many steps is complete on the disk; NULL: none. */
    void (*on_save)(void *user, long step, const char *path);
    void *user;
};

/* Trains a model. A checkpoint is a Hugging Face folder DIR/checkpoint-STEP with the optimizer's state beside the weights; it
 * is there as a whole or not at all, and goes on bit for bit on any lanes and schedule, at equal micro-batches. -EDOM:
 * a loss or gradient is not finite; -ETIMEDOUT: an op does not end, and the process should; -ENOSPC and others of a
 * last checkpoint that could not be written; each after one line. */
int penstock_train(const struct penstock_options *options,
                   const struct penstock_schedule *schedule,
                   const struct penstock_train *work);

/* What the configuration of options' model or shape says of it. */
struct penstock_model_info {
    char arch[16];
    size_t vocabulary, layers, hidden, max_context;
    size_t parameters, bytes; /* of the weights; those of a shape count as fp32 */
    char type[16]; /* that most weights have in the files: "BF16"; a shape's: "random" */
    int32_t eos[16];
    int n_eos;
    int32_t bos; /* -1: none */
};

int penstock_model_query(const struct penstock_options *options,
                         struct penstock_model_info *info);

/* ---- The machine --------------------------------------------------------------------------------- */

/* Writes what hwloc sees, the lanes that `devices` (NULL: all that the machine offers) names, and the
 * measured links between them, to out; the same as a picture to the file svg unless NULL. */
int penstock_topo(FILE *out, const char *svg, const char *devices);

#ifdef __cplusplus
}
#endif

#endif
