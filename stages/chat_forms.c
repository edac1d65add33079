/* Forms of chat prompts, after the templates that transformers renders: what they write
 * is taken from the model's template, what they do with it is known. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "stages/chat.h"

static bool is_role(const struct chat_message *m, const char *role)
{
    return !strcmp(m->role, role);
}

/* Whether the template has a literal that is exactly this. */
static bool has_exact(const struct chat_template *c, const char *text)
{
    for (size_t i = 0; i < c->n; i++)
        if (!strcmp(c->literals[i].text, text))
            return true;
    return false;
}

/* ChatML: <|im_start|>ROLE\nTEXT<|im_end|>\n. Qwen2 and SmolLM2 write a system message of
 * their own when there is none: a literal that opens it, says it, and closes it. */

#define IM_START "<|im_start|>"
#define IM_END   "<|im_end|>"

static bool chatml_known(const struct chat_template *c)
{
    return chat_opening(c, IM_START "assistant\n") &&
           chat_literal_find(c, NULL, IM_END) &&
           !chat_literal_find(c, NULL, "<|im_sep|>");
}

/* The system message that the template adds; *len 0: none. */
static const char *chatml_default(const struct chat_template *c, size_t *len)
{
    static const char open[] = IM_START "system\n";

    for (size_t i = 0; i < c->n; i++) {
        const char *at = strstr(c->literals[i].text, open);
        const char *end = at ? strstr(at, IM_END) : NULL;
        if (!end || end == at + strlen(open))
            continue;
        *len = (size_t)(end - at) - strlen(open);
        return at + strlen(open);
    }
    *len = 0;
    return NULL;
}

static void chatml_write(struct chat_writer *w)
{
    bool trim = chat_trims(w->c);
    size_t len;
    const char *system = chatml_default(w->c, &len);

    if (chat_has(w->c, "bos_token"))
        CHAT_WRITE(w, w->c->bos);
    if (len && !is_role(&w->messages[0], "system")) {
        CHAT_WRITE(w, IM_START "system\n");
        chat_write_bytes(w, system, len);
        CHAT_WRITE(w, IM_END "\n");
    }
    for (size_t i = 0; i < w->n; i++) {
        const struct chat_message *m = &w->messages[i];
        const char *text = is_role(m, "assistant") ? chat_answer(w->c, m->text) : m->text;
        if (text != m->text)
            text += strspn(text, "\n");
        CHAT_WRITE(w, IM_START, m->role, "\n");
        chat_write_text(w, text, trim);
        CHAT_WRITE(w, IM_END "\n");
    }
    CHAT_WRITE(w, chat_opening(w->c, IM_START "assistant\n")->text);
}

const struct chat_kind chat_chatml = {CHAT_CHATML, chatml_known, chatml_write};

/* Llama 3: a header with the role, a blank line, the trimmed text, <|eot_id|>. From 3.1
 * on the system message is always there and opens with two dates. */

#define HEADER_START "<|start_header_id|>"
#define HEADER_END   "<|end_header_id|>\n\n"
#define EOT          "<|eot_id|>"

/* The template's "today", or NULL if it has none that is understood. Newer templates ask
 * for the date of the day, in one format; older ones have a fixed one. */
static const char *llama3_today(const struct chat_template *c, char date[32])
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    const char *clock = strstr(c->source.data, "strftime_now(");
    const char *fixed = strstr(c->source.data, "set date_string =");
    const struct chat_literal *l;
    time_t now = time(NULL);
    struct tm tm;

    if (clock) {
        l = chat_literal_find(c, clock, "");
        if (!l || strcmp(l->text, "%d %b %Y") || !localtime_r(&now, &tm))
            return NULL;
        snprintf(date, 32, "%02d %s %d", tm.tm_mday, months[tm.tm_mon],
                 tm.tm_year + 1900);
        return date;
    }
    l = fixed ? chat_literal_find(c, fixed, "") : NULL;
    return l ? l->text : NULL;
}

static const struct chat_literal *llama3_cutoff(const struct chat_template *c)
{
    return chat_literal_find(c, NULL, "Cutting Knowledge Date: ");
}

static bool llama3_known(const struct chat_template *c)
{
    char date[32];

    if (!chat_opening(c, HEADER_START "assistant" HEADER_END) ||
        !chat_literal_find(c, NULL, EOT) || !chat_trims(c))
        return false;
    return !llama3_cutoff(c) ||
           (chat_literal_find(c, NULL, "Today Date: ") && llama3_today(c, date));
}

static void llama3_write(struct chat_writer *w)
{
    const struct chat_literal *cutoff = llama3_cutoff(w->c);
    char date[32];
    size_t i = 0;

    CHAT_WRITE(w, w->c->bos);
    if (cutoff) {
        CHAT_WRITE(w, HEADER_START "system" HEADER_END, cutoff->text,
                   "Today Date: ", llama3_today(w->c, date), "\n\n");
        if (is_role(&w->messages[0], "system"))
            chat_write_text(w, w->messages[i++].text, true);
        CHAT_WRITE(w, EOT);
    }
    for (; i < w->n; i++) {
        CHAT_WRITE(w, HEADER_START, w->messages[i].role, HEADER_END);
        chat_write_text(w, w->messages[i].text, true);
        CHAT_WRITE(w, EOT);
    }
    CHAT_WRITE(w, chat_opening(w->c, HEADER_START "assistant")->text);
}

const struct chat_kind chat_llama3 = {CHAT_LLAMA3, llama3_known, llama3_write};

/* DeepSeek-R1: the system message bare, then marks before the user's and the model's
 * texts; the model's end with its end token, and without the reasoning. */

#define R1_BAR       "\xef\xbd\x9c"
#define R1_GAP       "\xe2\x96\x81"
#define R1_USER      "<" R1_BAR "User" R1_BAR ">"
#define R1_ASSISTANT "<" R1_BAR "Assistant" R1_BAR ">"
#define R1_END       "<" R1_BAR "end" R1_GAP "of" R1_GAP "sentence" R1_BAR ">"

/* Later templates of the family, which can switch thinking on and off, are others. */
static bool r1_known(const struct chat_template *c)
{
    return chat_literal_find(c, NULL, R1_USER) && chat_opening(c, R1_ASSISTANT) &&
           chat_literal_find(c, NULL, R1_END) && chat_literal_find(c, NULL, "</think>") &&
           !strstr(c->source.data, "thinking");
}

static void r1_write(struct chat_writer *w)
{
    CHAT_WRITE(w, w->c->bos);
    for (size_t i = 0; i < w->n; i++) {
        const struct chat_message *m = &w->messages[i];
        if (is_role(m, "system"))
            CHAT_WRITE(w, m->text);
        else if (is_role(m, "user"))
            CHAT_WRITE(w, R1_USER, m->text);
        else
            CHAT_WRITE(w, R1_ASSISTANT, chat_answer(w->c, m->text), R1_END);
    }
    CHAT_WRITE(w, chat_opening(w->c, R1_ASSISTANT)->text);
}

const struct chat_kind chat_deepseek_r1 = {CHAT_DEEPSEEK_R1, r1_known, r1_write};

/* Zephyr: <|ROLE|>\nTEXT and the end token; the line break behind it, and behind the last
 * mark, is that of the template's own lines. */

static bool zephyr_known(const struct chat_template *c)
{
    return has_exact(c, "<|user|>\n") && has_exact(c, "<|system|>\n") &&
           has_exact(c, "<|assistant|>\n") && chat_opening(c, "<|assistant|>") &&
           chat_has(c, "['content']+eos_token}}") && *c->eos;
}

/* The line break behind the tag that a literal is in. */
static const char *break_behind(const struct chat_literal *l)
{
    const char *close = strstr(l->end, "}}");
    return close && close[-1] != '-' && close[2] == '\n' ? "\n" : "";
}

static void zephyr_write(struct chat_writer *w)
{
    const struct chat_literal *user = chat_literal_find(w->c, NULL, "<|user|>\n");
    const struct chat_literal *open = chat_opening(w->c, "<|assistant|>");

    for (size_t i = 0; i < w->n; i++)
        CHAT_WRITE(w, "<|", w->messages[i].role, "|>\n", w->messages[i].text, w->c->eos,
                   break_behind(user));
    CHAT_WRITE(w, open->text, break_behind(open));
}

const struct chat_kind chat_zephyr = {CHAT_ZEPHYR, zephyr_known, zephyr_write};

/* Mistral: [INST] TEXT [/INST] ANSWER and the end token, in turns; the spaces differ from
 * one release to the next. A system message, where the template knows one, goes before
 * the first or the last question. */

static const struct chat_literal *inst_open(const struct chat_template *c)
{
    return chat_literal_find(c, NULL, "[INST]");
}

static bool mistral_known(const struct chat_template *c)
{
    const struct chat_literal *open = inst_open(c);
    const struct chat_literal *close = chat_literal_find(c, NULL, "[/INST]");

    return open && close && open != close && !open->raw && !close->raw && *c->eos &&
           !chat_literal_find(c, NULL, "<<SYS>>") &&
           !chat_literal_find(c, NULL, "[SYSTEM_PROMPT]");
}

/* Which question the system message goes with: 1 the first, 2 the last, 0 none. */
static int mistral_system(const struct chat_template *c)
{
    if (chat_has(c, "loop.firstandsystem_messageisdefined"))
        return 1;
    return chat_has(c, "loop.lastandsystem_messageisdefined") ? 2 : 0;
}

/* Whether a space goes before or behind an answer: the template's expressions lost
 * theirs. */
static void mistral_answer(struct chat_writer *w, const char *text)
{
    bool trim = chat_trims(w->c);
    bool space = chat_has(w->c, "{{-\"\"+message[\"content\"]") ||
                 chat_has(w->c, "{{\"\"+message[\"content\"]") ||
                 chat_has(w->c, "{{''+message['content']") ||
                 chat_has(w->c, "{{-''+message['content']");
    bool behind = chat_has(w->c, "eos_token+''") || chat_has(w->c, "eos_token+\"\"");

    CHAT_WRITE(w, space ? " " : "");
    chat_write_text(w, text, trim);
    CHAT_WRITE(w, w->c->eos, behind ? " " : "");
}

/* Questions and answers take turns, and a system message has its place. */
static int mistral_check(const struct chat_writer *w, bool system)
{
    if (system && !mistral_system(w->c)) {
        log_error("chat: this model's template takes no system message");
        return -EINVAL;
    }
    for (size_t i = system; i < w->n; i++) {
        bool user = (i - system) % 2 == 0;
        if (is_role(&w->messages[i], "user") == user)
            continue;
        log_error("chat: this model's template wants user and assistant in turns");
        return -EINVAL;
    }
    return 0;
}

static void mistral_write(struct chat_writer *w)
{
    const char *open = inst_open(w->c)->text;
    const char *close = chat_literal_find(w->c, NULL, "[/INST]")->text;
    bool system = is_role(&w->messages[0], "system");

    w->err = mistral_check(w, system);
    CHAT_WRITE(w, w->c->bos);
    for (size_t i = system; i < w->n; i++) {
        size_t at = mistral_system(w->c) == 1 ? 1 : w->n - 1;
        if (is_role(&w->messages[i], "assistant")) {
            mistral_answer(w, w->messages[i].text);
            continue;
        }
        CHAT_WRITE(w, open);
        if (system && i == at)
            CHAT_WRITE(w, w->messages[0].text, "\n\n");
        CHAT_WRITE(w, w->messages[i].text, close);
    }
}

const struct chat_kind chat_mistral = {CHAT_MISTRAL, mistral_known, mistral_write};
