/* Chat prompts: which form a model's template has, and prompts in that form. */
#include "stages/chat.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/model.h"

static const struct chat_kind *const kinds[] = {
    &chat_deepseek_r1, &chat_llama3, &chat_chatml, &chat_zephyr, &chat_mistral,
};

void chat_write_bytes(struct chat_writer *w, const char *data, size_t len)
{
    if (!w->err)
        w->err = text_add(&w->out, data, len);
}

void chat_write(struct chat_writer *w, const char *const *texts)
{
    for (; *texts; texts++)
        chat_write_bytes(w, *texts, strlen(*texts));
}

void chat_write_text(struct chat_writer *w, const char *text, bool trim)
{
    size_t at = 0, end = strlen(text), n;
    uint32_t code;

    while (trim && (n = utf8_next(&code, text + at, end - at)) && code_is_blank(code))
        at += n;
    while (trim && end > at && (n = utf8_back(text, end)) >= at &&
           utf8_next(&code, text + n, end - n) && code_is_blank(code))
        end = n;
    chat_write_bytes(w, text + at, end - at);
}

bool chat_has(const struct chat_template *c, const char *dense)
{
    return strstr(c->dense.data, dense) != NULL;
}

bool chat_trims(const struct chat_template *c)
{
    return chat_has(c, "['content']|trim") || chat_has(c, "[\"content\"]|trim") ||
           chat_has(c, ".content|trim") || chat_has(c, "['content'].strip()");
}

const struct chat_literal *chat_opening(const struct chat_template *c, const char *marker)
{
    static const char word[] = "add_generation_prompt";
    const char *last = NULL, *at = c->source.data;

    while ((at = strstr(at, word)))
        last = at++;
    if (last)
        return chat_literal_find(c, last, marker);
    for (size_t i = c->n; i-- > 0;)
        if (strstr(c->literals[i].text, marker))
            return &c->literals[i];
    return NULL;
}

const char *chat_answer(const struct chat_template *c, const char *text)
{
    static const char end[] = "</think>";
    const char *at;

    if (!chat_literal_find(c, NULL, end))
        return text;
    while ((at = strstr(text, end)))
        text = at + strlen(end);
    return text;
}

static const struct chat_kind *find_kind(const struct chat_template *c)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i]->known(c))
            return kinds[i];
    return NULL;
}

static int no_template(const struct model *m, const struct chat_template *c)
{
    if (!c->source.len)
        log_error("%s: the model has no chat template", m->path);
    else
        log_error("%s: the model's chat template is of no known form (ChatML, Llama 3, "
                  "DeepSeek-R1, Zephyr, Mistral)",
                  m->path);
    return -ENOTSUP;
}

int chat_detect(enum chat_form *form, const struct model *m)
{
    struct chat_template c;
    const struct chat_kind *kind;

    *form = CHAT_NONE;
    int err = chat_template_open(&c, m);
    if (err)
        return err;
    kind = c.source.len ? find_kind(&c) : NULL;
    if (kind)
        *form = kind->form;
    else
        err = no_template(m, &c);
    chat_template_fini(&c);
    return err;
}

static int check_messages(const struct chat_message *messages, size_t n)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    char text[32];

    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < ARRAY_LEN(roles) && strcmp(messages[i].role, roles[k]))
            k++;
        if (k < ARRAY_LEN(roles) && !(i && k == 0))
            continue;
        log_error(
            "chat: message %zu of role \"%s\": there is one of role system, the first, "
            "and then user and assistant",
            i, file_text(text, sizeof(text), messages[i].role, strlen(messages[i].role)));
        return -EINVAL;
    }
    if (n && !strcmp(messages[n - 1].role, "user"))
        return 0;
    log_error("chat: the last message is not the user's");
    return -EINVAL;
}

static int render(char **text, const struct chat_kind *kind, struct chat_writer *w)
{
    kind->write(w);
    chat_write_bytes(w, "", 1);
    if (w->err) {
        text_fini(&w->out);
        return w->err;
    }
    *text = w->out.data;
    return 0;
}

int chat_render(char **text, enum chat_form form, const struct model *m,
                const struct chat_message *messages, size_t n)
{
    struct chat_template c;
    int err = check_messages(messages, n);

    if (!err)
        err = chat_template_open(&c, m);
    if (err)
        return err;
    const struct chat_kind *kind = c.source.len ? find_kind(&c) : NULL;
    struct chat_writer w = {.c = &c, .messages = messages, .n = n};
    if (kind && kind->form == form)
        err = render(text, kind, &w);
    else
        err = no_template(m, &c);
    chat_template_fini(&c);
    return err;
}
