/* Lists and ranges, as llama-bench has them. */
#include "cli/lists.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/options.h"

#define MAX_ITEMS 4096

void int_list_fini(struct int_list *l)
{
    free(l->items);
    *l = (struct int_list){0};
}

void word_list_fini(struct word_list *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct word_list){0};
}

static int too_long(const char *flag)
{
    return cli_error("%s: more than %d values", flag, MAX_ITEMS);
}

static int add_int(struct int_list *l, const char *flag, long value)
{
    if (l->n == MAX_ITEMS)
        return too_long(flag);
    long *more = realloc(l->items, (l->n + 1) * sizeof(*more));
    if (!more)
        return cli_no_memory(flag);
    l->items = more;
    l->items[l->n++] = value;
    return 0;
}

static int add_word(struct word_list *l, const char *flag, char *word)
{
    if (l->n == MAX_ITEMS)
        return too_long(flag);
    char **more = realloc(l->items, (l->n + 1) * sizeof(*more));
    if (!more)
        return cli_no_memory(flag);
    l->items = more;
    l->items[l->n++] = word;
    return 0;
}

int word_list_add(struct word_list *l, const char *flag, const char *value,
                  char separator)
{
    const char between[] = {separator, '\0'};
    int err;

    do {
        size_t len = strcspn(value, between);
        char *word = strndup(value, len);
        if (!word)
            return cli_no_memory(flag);
        err = len ? add_word(l, flag, word) : cli_error("%s: a value is empty", flag);
        if (err)
            free(word);
        value += len;
    } while (!err && *value++);
    return err;
}

/* Cuts text at the first of these characters; what follows it, or NULL. */
static char *cut(char *text, const char *characters, char *which)
{
    char *at = strpbrk(text, characters);
    if (!at)
        return NULL;
    *which = *at;
    *at = '\0';
    return at + 1;
}

/* One item, which it cuts to pieces. */
static int add_range(struct int_list *l, const char *flag, char *item, long low,
                     long high)
{
    char how = '+', dash;
    char *last_text = item[0] ? cut(item + 1, "-", &dash) : NULL;
    char *step_text = last_text ? cut(last_text, "+*", &how) : NULL;
    long first, last, step = 1;
    int err = parse_int(&first, flag, item, low, high);

    last = first;
    if (!err && last_text)
        err = parse_int(&last, flag, last_text, first, high);
    if (!err && step_text)
        err = parse_int(&step, flag, step_text, how == '*' ? 2 : 1, high);
    if (!err && how == '*' && first < 1)
        err = cli_error("%s %ld-%ld*%ld: this range has to begin at 1 or more", flag,
                        first, last, step);
    while (!err && first <= last) {
        err = add_int(l, flag, first);
        first = how == '*' ? first * step : first + step;
    }
    return err;
}

int int_list_add(struct int_list *l, const char *flag, const char *value, long low,
                 long high)
{
    struct word_list items = {0};
    int err = word_list_add(&items, flag, value, ',');

    for (int i = 0; i < items.n && !err; i++)
        err = add_range(l, flag, items.items[i], low, high);
    word_list_fini(&items);
    return err;
}
