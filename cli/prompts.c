/* Prompts from texts, JSONL and JSON. */
#include "cli/prompts.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

void prompts_free(struct prompt_list *p)
{
    for (int i = 0; i < p->n; i++)
        free((void *)p->items[i].ids);
    free(p->items);
    *p = (struct prompt_list){0};
}

int prompts_add(struct prompt_list *p, int32_t *ids, size_t n)
{
    if (p->n == p->cap) {
        int cap = p->cap ? 2 * p->cap : 16;
        struct penstock_prompt *more = realloc(p->items, cap * sizeof(*more));
        if (!more) {
            free(ids);
            return cli_no_memory("the prompts");
        }
        p->items = more;
        p->cap = cap;
    }
    p->items[p->n++] = (struct penstock_prompt){ids, n};
    return 0;
}

int prompts_add_text(struct prompt_list *p, struct penstock_text *t, const char *text,
                     size_t len, bool chat)
{
    char *form = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int err = 0;

    /* The chat form writes the sequence start itself, where there is one. */
    if (chat && strlen(text) != len)
        err = cli_error("a text in chat form cannot hold a NUL byte");
    else if (chat)
        err = penstock_chat(t, &form, NULL, text);
    if (!err && form)
        err = penstock_encode(t, &ids, &n, form, strlen(form), true, false);
    else if (!err)
        err = penstock_encode(t, &ids, &n, text, len, false, true);
    free(form);
    return err ? err : prompts_add(p, ids, n);
}

static int add_json_ids(struct prompt_list *p, const json_t *list, const char *where)
{
    size_t n = json_array_size(list);
    int32_t *ids = calloc(n ? n : 1, sizeof(*ids));
    if (!ids)
        return cli_no_memory("the prompts");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX) {
            free(ids);
            return cli_error("%s: item %zu is not a token id", where, i);
        }
        ids[i] = (int32_t)id;
    }
    return prompts_add(p, ids, n);
}

static int add_line(struct prompt_list *p, struct penstock_text *t, const char *line,
                    size_t len, const char *where, bool chat)
{
    json_error_t why;
    json_t *o = json_loadb(line, len, JSON_REJECT_DUPLICATES, &why);
    const json_t *prompt = json_object_get(o, "prompt"), *ids = json_object_get(o, "ids");
    int err;

    if (!o)
        err = cli_error("%s: %s", where, why.text);
    else if (json_is_string(prompt) && !ids)
        err = prompts_add_text(p, t, json_string_value(prompt),
                               json_string_length(prompt), chat);
    else if (json_is_array(ids) && !prompt)
        err = add_json_ids(p, ids, where);
    else
        err = cli_error("%s: expected {\"prompt\": TEXT} or {\"ids\": [...]}", where);
    json_decref(o);
    return err;
}

int prompts_add_jsonl(struct prompt_list *p, struct penstock_text *t, const char *path,
                      bool chat)
{
    char *text, where[300];
    size_t len;
    int err = read_file(&text, &len, path), number = 0;
    if (err)
        return err;
    for (char *line = text; !err && line < text + len;) {
        char *end = memchr(line, '\n', text + len - line);
        end = end ? end : text + len;
        snprintf(where, sizeof(where), "%.250s, line %d", path, ++number);
        if (strspn(line, " \t\r") < (size_t)(end - line))
            err = add_line(p, t, line, end - line, where, chat);
        line = end + 1;
    }
    free(text);
    return err || p->n ? err : cli_error("%s has no prompts", path);
}

static int add_lists(struct prompt_list *p, const json_t *all, const char *path)
{
    int err = 0;
    if (json_is_integer(json_array_get(all, 0)))
        return add_json_ids(p, all, path);
    for (size_t i = 0; !err && i < json_array_size(all); i++) {
        const json_t *list = json_array_get(all, i);
        if (json_is_array(list))
            err = add_json_ids(p, list, path);
        else
            err = cli_error("%s: item %zu is not a list of token ids", path, i);
    }
    return err;
}

int prompts_add_ids(struct prompt_list *p, const char *path)
{
    json_error_t why;
    char *text;
    size_t len;
    int err = read_file(&text, &len, path);
    if (err)
        return err;
    json_t *all = json_loadb(text, len, 0, &why);
    free(text);
    if (json_array_size(all))
        err = add_lists(p, all, path);
    else
        err = cli_error("%s: %s", path,
                        all ? "expected a JSON list of lists of token ids" : why.text);
    json_decref(all);
    return err;
}
