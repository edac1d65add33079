/* Text for the command line: a model's tokenizer, chat form and sizes, without lanes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/penstock.h"
#include "stages/params.h"
#include "stages/tokenizer.h"

struct penstock_text {
    struct model *model;
    struct tokenizer *tokenizer;
    enum chat_form form;
    bool form_known;
};

struct penstock_stream {
    struct tokenizer_stream *stream;
};

int penstock_text_open(struct penstock_text **out, const char *model)
{
    struct penstock_text *t = calloc(1, sizeof(*t));
    if (!t)
        return log_no_memory("a text");
    int err = model ? model_open(&t->model, model) : 0;
    if (!err && model)
        err = tokenizer_open(&t->tokenizer, t->model);
    if (err) {
        penstock_text_close(t);
        return err;
    }
    *out = t;
    return 0;
}

void penstock_text_close(struct penstock_text *t)
{
    if (!t)
        return;
    tokenizer_close(t->tokenizer);
    model_close(t->model);
    free(t);
}

bool penstock_text_known(const struct penstock_text *t)
{
    return t->tokenizer != NULL;
}

static int need_tokenizer(const struct penstock_text *t)
{
    if (t->tokenizer)
        return 0;
    log_error("%s has no tokenizer: give token ids",
              t->model ? t->model->path : "a shape");
    return -ENOENT;
}

int penstock_encode(struct penstock_text *t, int32_t **ids, size_t *n, const char *text,
                    size_t len, bool special, bool bos)
{
    int err = need_tokenizer(t);
    return err ? err : tokenizer_encode(t->tokenizer, ids, n, text, len, special, bos);
}

int penstock_decode(struct penstock_text *t, char **text, size_t *len, const int32_t *ids,
                    size_t n, bool special)
{
    int err = need_tokenizer(t);
    return err ? err : tokenizer_decode(t->tokenizer, text, len, ids, n, special);
}

int penstock_chat(struct penstock_text *t, char **prompt, const char *system,
                  const char *user)
{
    struct chat_message messages[2] = {{"system", system}, {"user", user}};
    bool has_system = system != NULL;
    int err = need_tokenizer(t);

    if (!err && !t->form_known) {
        err = chat_detect(&t->form, t->model);
        t->form_known = !err;
    }
    if (err)
        return err;
    return chat_render(prompt, t->form, t->model, has_system ? messages : messages + 1,
                       has_system ? 2 : 1);
}

int penstock_stream_open(struct penstock_stream **out, const struct penstock_text *t)
{
    struct penstock_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return log_no_memory("a text");
    int err = need_tokenizer(t);
    if (!err)
        err = tokenizer_stream_create(&s->stream, t->tokenizer);
    if (err) {
        free(s);
        return err;
    }
    *out = s;
    return 0;
}

void penstock_stream_close(struct penstock_stream *s)
{
    if (!s)
        return;
    tokenizer_stream_destroy(s->stream);
    free(s);
}

int penstock_stream_next(struct penstock_stream *s, int32_t id, const char **text,
                         size_t *len)
{
    return tokenizer_stream_next(s->stream, id, text, len);
}

int penstock_stream_flush(struct penstock_stream *s, const char **text, size_t *len)
{
    return tokenizer_stream_flush(s->stream, text, len);
}

/* Counts the weights, and finds the type that most of them have. */
static int count_weights(const struct model *m, struct penstock_model_info *info)
{
    size_t of_type[DTYPE_COUNT] = {0};
    enum dtype most = DTYPE_F32;
    struct params p;
    int err = params_init(&p, &m->config, 0, m->config.L, true, true);

    for (size_t i = 0; i < p.n && !err; i++) {
        enum dtype type = model_tensor(m, p.list[i].weight, p.list[i].layer)->dtype;
        size_t n = p.list[i].rows * p.list[i].cols, bytes;
        err = dtype_bytes(&bytes, type, n);
        info->parameters += n;
        info->bytes += err ? 0 : bytes;
        of_type[type] += n;
        most = of_type[type] > of_type[most] ? type : most;
    }
    snprintf(info->type, sizeof(info->type), "%s",
             m->random ? "random" : dtype_name(most));
    params_fini(&p);
    return err;
}

int penstock_model_query(const struct penstock_options *o,
                         struct penstock_model_info *info)
{
    struct model *m;
    int err = o->shape ? model_open_shape(&m, o->shape, 0) : model_open(&m, o->model);
    if (err)
        return err;
    const struct model_config *c = &m->config;
    *info = (struct penstock_model_info){
        .vocabulary = c->V,
        .layers = c->L,
        .hidden = c->C,
        .max_context = c->max_positions,
        .n_eos = c->n_eos,
        .bos = c->bos,
    };
    memcpy(info->eos, c->eos, sizeof(info->eos));
    memcpy(info->arch, c->arch, sizeof(info->arch));
    err = count_weights(m, info);
    model_close(m);
    return err;
}

void penstock_set_verbosity(int level)
{
    log_set_level(level);
}
