/* Chat templates: where they are, and the texts in them. */
#include "stages/chat_template.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/doc.h"
#include "stages/file.h"
#include "stages/gguf.h"
#include "stages/model.h"

static int set_text(char **out, const char *data, size_t len)
{
    char *copy = strndup(data, len);
    if (!copy)
        return file_no_memory("chat template");
    free(*out);
    *out = copy;
    return 0;
}

static int add_literal(struct chat_template *c, const char *at, const char *end, bool raw)
{
    int err = text_room((void **)&c->literals, &c->cap, c->n, 1, sizeof(*c->literals));
    char *text = err ? NULL : malloc((size_t)(end - at) + 1);

    if (!text)
        return err ? err : file_no_memory("chat template");
    memcpy(text, at, (size_t)(end - at));
    text[end - at] = '\0';
    c->literals[c->n++] = (struct chat_literal){at, end, text, raw};
    return 0;
}

/* Replaces escapes in place. */
static void unescape(char *s)
{
    char *out = s;

    for (; *s; s++) {
        if (*s == '\\' && s[1]) {
            s++;
            *out++ = *s == 'n' ? '\n' : *s == 't' ? '\t' : *s == 'r' ? '\r' : *s;
        } else {
            *out++ = *s;
        }
    }
    *out = '\0';
}

/* Literals of a tag; returns the end of the tag, behind its closing, or NULL: it has
 * none. */
static const char *read_tag(struct chat_template *c, const char *at, char kind, int *err)
{
    char close = kind == '{' ? '}' : kind;

    for (; *at && !*err; at++) {
        if (at[0] == close && at[1] == '}')
            return at + 2;
        if (*at != '\'' && *at != '"')
            continue;
        const char *end = at + 1;
        while (*end && *end != *at)
            end += *end == '\\' && end[1] ? 2 : 1;
        if (!*end)
            break;
        *err = add_literal(c, at + 1, end, false);
        if (!*err)
            unescape(c->literals[c->n - 1].text);
        at = end;
    }
    return NULL;
}

/* Text between two tags. Jinja drops the line break behind a block, blanks before a block
 * on its line, and all white space next to a minus sign. before, behind: the tags'
 * brackets, NULL at the ends. */
static int read_raw(struct chat_template *c, const char *at, const char *end,
                    const char *before, const char *behind)
{
    bool strip = before && before[-3] == '-';
    bool new_line = !before;

    while (strip && at < end && isspace((unsigned char)*at))
        at++;
    if (!strip && before && before[-2] != '}' && at < end && *at == '\n')
        at++, new_line = true;
    if (behind && behind[2] == '-') {
        while (end > at && isspace((unsigned char)end[-1]))
            end--;
    } else if (behind && behind[1] != '{') {
        const char *line = end;
        while (line > at && (line[-1] == ' ' || line[-1] == '\t'))
            line--;
        if (line > at ? line[-1] == '\n' : new_line)
            end = line;
    }
    return at < end ? add_literal(c, at, end, true) : 0;
}

static int add_dense(struct chat_template *c)
{
    int err = 0;

    for (const char *s = c->source.data; *s && !err; s++)
        if (!isspace((unsigned char)*s))
            err = text_add(&c->dense, s, 1);
    return err ? err : text_add(&c->dense, "", 1);
}

/* The start of the next tag, or NULL. */
static const char *next_tag(const char *at)
{
    for (; (at = strchr(at, '{')); at++)
        if (at[1] == '{' || at[1] == '%' || at[1] == '#')
            return at;
    return NULL;
}

int chat_template_parse(struct chat_template *c, const char *source, size_t len)
{
    const char *before = NULL;
    int err = text_add(&c->source, source, strnlen(source, len));

    if (!err)
        err = text_add(&c->source, "", 1);
    if (!err)
        err = add_dense(c);
    const char *at = c->source.data;
    while (!err && at) {
        const char *tag = next_tag(at);
        err = read_raw(c, at, tag ? tag : at + strlen(at), before, tag);
        if (err || !tag)
            break;
        if (tag[1] == '#')
            at = strstr(tag, "#}") ? strstr(tag, "#}") + 2 : NULL;
        else
            at = read_tag(c, tag + 2, tag[1], &err);
        before = at;
    }
    return err;
}

/* A template, or the one that is named default. */
static const char *pick(const json_t *value)
{
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name && !strcmp(name, "default"))
            return json_string_value(json_object_get(item, "template"));
    }
    return json_string_value(value);
}

/* Text of a token in tokenizer_config.json. */
static int config_token(char **out, const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(
        json_is_object(value) ? json_object_get(value, "content") : value);
    return text ? set_text(out, text, strlen(text)) : 0;
}

static int read_jinja(struct chat_template *c, const char *dir, bool *found)
{
    struct file_map map;
    char *path;
    int err = file_join(&path, dir, "chat_template.jinja");

    if (err)
        return err;
    *found = !access(path, F_OK);
    if (*found) {
        err = file_map(&map, path);
        if (!err) {
            err = chat_template_parse(c, (const char *)map.data, map.bytes);
            file_unmap(&map);
        }
    }
    free(path);
    return err;
}

static int read_config(struct chat_template *c, const char *dir, bool tokens_only)
{
    json_t *root = NULL;
    char *path;
    int err = file_join(&path, dir, "tokenizer_config.json");

    if (!err && !access(path, F_OK))
        err = doc_open(&root, path);
    if (!err)
        err = config_token(&c->bos, root, "bos_token");
    if (!err)
        err = config_token(&c->eos, root, "eos_token");
    const char *source = pick(json_object_get(root, "chat_template"));
    if (!err && source && !tokens_only)
        err = chat_template_parse(c, source, strlen(source));
    json_decref(root);
    free(path);
    return err;
}

/* Text of the token whose id is at `key`. */
static int gguf_token(char **out, const struct gguf *g, const char *key)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    const struct gguf_kv *list = gguf_find(g, "tokenizer.ggml.tokens");
    struct gguf_str *tokens = NULL;
    int64_t id;

    if (!kv || !list || gguf_int(&id, kv, 0) || id < 0 || (uint64_t)id >= list->count ||
        gguf_strings(&tokens, list))
        return 0;
    int err = set_text(out, tokens[id].data, tokens[id].len);
    free(tokens);
    return err;
}

static int read_gguf(struct chat_template *c, const struct gguf *g)
{
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.chat_template");
    struct gguf_str source;
    int err = gguf_token(&c->bos, g, "tokenizer.ggml.bos_token_id");

    if (!err)
        err = gguf_token(&c->eos, g, "tokenizer.ggml.eos_token_id");
    if (!err && kv && !gguf_string(&source, kv))
        err = chat_template_parse(c, source.data, source.len);
    return err;
}

int chat_template_open(struct chat_template *c, const struct model *m)
{
    bool found = false;

    *c = (struct chat_template){0};
    int err = set_text(&c->bos, "", 0);
    if (!err)
        err = set_text(&c->eos, "", 0);
    if (!err && m->dir)
        err = read_jinja(c, m->dir, &found);
    if (!err && m->dir)
        err = read_config(c, m->dir, found);
    else if (!err && m->gguf)
        err = read_gguf(c, m->gguf);
    if (err)
        chat_template_fini(c);
    return err;
}

void chat_template_fini(struct chat_template *c)
{
    for (size_t i = 0; i < c->n; i++)
        free(c->literals[i].text);
    free(c->literals);
    free(c->bos);
    free(c->eos);
    text_fini(&c->source);
    text_fini(&c->dense);
    *c = (struct chat_template){0};
}

const struct chat_literal *chat_literal_find(const struct chat_template *c,
                                             const char *from, const char *text)
{
    for (size_t i = 0; i < c->n; i++)
        if ((!from || c->literals[i].at >= from) && strstr(c->literals[i].text, text))
            return &c->literals[i];
    return NULL;
}
