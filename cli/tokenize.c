/* penstock tokenize: text to ids as one JSON list, and back. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/options.h"

enum { OPT_DECODE = OPT_OWN, OPT_CHAT, OPT_SPECIAL, OPT_BOS };

static const struct option flags[] = {
    {"model", required_argument, NULL, 'm'},
    {"decode", no_argument, NULL, OPT_DECODE},
    {"chat", no_argument, NULL, OPT_CHAT},
    {"special", no_argument, NULL, OPT_SPECIAL},
    {"bos", no_argument, NULL, OPT_BOS},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static const char usage_text[] =
    "usage: penstock tokenize -m MODEL [--decode] [--chat] < TEXT\n\n"
    "Reads text from standard input and prints its token ids as one JSON list.\n\n"
    "  -m, --model PATH   Hugging Face folder or GGUF file\n"
    "      --decode       the other way: a JSON list of ids to text\n"
    "      --chat         put the text into the model's chat form first\n"
    "      --special      recognise special tokens in the text; print them with "
    "--decode\n"
    "      --bos          put the sequence start before it if the model wants one\n";

struct tokenize {
    const char *model;
    bool decode, chat, special, bos;
};

static int print_ids(const int32_t *ids, size_t n)
{
    putchar('[');
    for (size_t i = 0; i < n; i++)
        printf(i ? ", %d" : "%d", ids[i]);
    puts("]");
    return close_stdout();
}

static int encode(const struct tokenize *o, struct penstock_text *t, const char *text,
                  size_t len)
{
    char *form = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    int err = 0;
    if (o->chat && strlen(text) != len)
        err = cli_error("a text in chat form cannot hold a NUL byte");
    else if (o->chat)
        err = penstock_chat(t, &form, NULL, text);
    if (!err && form)
        err = penstock_encode(t, &ids, &n, form, strlen(form), true, false);
    else if (!err)
        err = penstock_encode(t, &ids, &n, text, len, o->special, o->bos);
    if (!err)
        err = print_ids(ids, n);
    free(form);
    free(ids);
    return err;
}

/* Reads a JSON list of ids. */
static int read_ids(int32_t **out, size_t *n, const char *json, size_t len)
{
    json_error_t why;
    json_t *list = json_loadb(json, len, 0, &why);
    int err = json_is_array(list) ? 0 : -EINVAL;
    int32_t *ids = calloc(json_array_size(list) + 1, sizeof(*ids));

    *n = json_array_size(list);
    for (size_t i = 0; ids && !err && i < *n; i++) {
        const json_t *v = json_array_get(list, i);
        json_int_t id = json_integer_value(v);
        err = json_is_integer(v) && id >= 0 && id <= INT32_MAX ? 0 : -EINVAL;
        ids[i] = (int32_t)id;
    }
    json_decref(list);
    if (!ids)
        return cli_no_memory("the ids");
    if (err) {
        cli_error("standard input: expected a JSON list of token ids");
        free(ids);
        return err;
    }
    *out = ids;
    return 0;
}

static int decode(const struct tokenize *o, struct penstock_text *t, const char *json,
                  size_t len)
{
    int32_t *ids = NULL;
    char *text = NULL;
    size_t n, bytes = 0;
    int err = read_ids(&ids, &n, json, len);
    if (!err)
        err = penstock_decode(t, &text, &bytes, ids, n, o->special);
    if (!err) {
        fwrite(text, 1, bytes, stdout);
        err = close_stdout();
    }
    free(ids);
    free(text);
    return err;
}

static int run(const struct tokenize *o)
{
    struct penstock_text *t = NULL;
    char *text = NULL;
    size_t len = 0;
    int err = penstock_text_open(&t, o->model);
    if (!err)
        err = read_file(&text, &len, "-");
    if (!err)
        err = o->decode ? decode(o, t, text, len) : encode(o, t, text, len);
    free(text);
    penstock_text_close(t);
    return err;
}

int cmd_tokenize(int argc, char **argv)
{
    struct tokenize o = {0};
    int flag;
    while ((flag = next_flag(argc, argv, ":m:h", flags)) >= 0) {
        if (flag == 'h') {
            fputs(usage_text, stdout);
            return close_stdout() != 0;
        }
        if (flag == '?')
            return 1;
        o.model = flag == 'm' ? optarg : o.model;
        o.decode |= flag == OPT_DECODE;
        o.chat |= flag == OPT_CHAT;
        o.special |= flag == OPT_SPECIAL;
        o.bos |= flag == OPT_BOS;
    }
    if (no_arguments(argc, argv))
        return 1;
    if (!o.model)
        return cli_error("give -m MODEL") != 0;
    return run(&o) != 0;
}
