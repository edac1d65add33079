/* tokenizer.json of a tokenizer that was read from a GGUF file: the tokenizers library
 * makes the same ids and the same text with it. */
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "stages/file.h"
#include "stages/patterns.h"
#include "stages/tokenizer_parts.h"

struct json_writer {
    const struct tokenizer *t;
    const char *name;
    struct text scratch;
};

/* Appends to a list; takes the item over. */
static int add(json_t *list, json_t *item)
{
    return json_array_append_new(list, item) ? log_no_memory("tokenizer.json") : 0;
}

/* ---- Tokens ----------------------------------------------------------------------------------- */

static enum vocab_kind kind_of(const struct json_writer *w, size_t id)
{
    return w->t->vocab.tokens[id].kind;
}

/* A token that is matched before anything else. */
static bool is_added(const struct json_writer *w, size_t id)
{
    return kind_of(w, id) == VOCAB_SPECIAL || kind_of(w, id) == VOCAB_ADDED;
}

/* Whether text opens with a mark, but not behind user-defined tokens. */
static bool opens(const struct tokenizer *t)
{
    return t->normalizer.n && t->normalizer.steps[0].kind == NORM_OPEN;
}

/* A token as the file writes it, valid until the next call. */
static int token_text(struct json_writer *w, size_t id, const char **out)
{
    const struct vocab *v = &w->t->vocab;
    const char *text = vocab_text(v, id);
    size_t len = v->tokens[id].len;

    w->scratch.len = 0;
    int err = w->t->bpe.byte_level && kind_of(w, id) == VOCAB_NORMAL
                  ? vocab_to_alphabet(&w->scratch, text, len)
                  : text_add(&w->scratch, text, len);
    if (!err)
        err = text_add(&w->scratch, "", 1);
    if (err)
        return err;
    *out = w->scratch.data;
    if (utf8_prefix(*out, w->scratch.len) == w->scratch.len &&
        strlen(*out) + 1 == w->scratch.len)
        return 0;
    log_error("%s: token %zu is no text that tokenizer.json can hold", w->name, id);
    return -ENOTSUP;
}

static int token_json(struct json_writer *w, int32_t id, json_t **out)
{
    const char *text;
    int err = token_text(w, (size_t)id, &text);

    *out = err ? NULL : json_string(text);
    return err || *out ? err : log_no_memory("tokenizer.json");
}

/* Of two tokens with one text the file can hold the one that text can become. */
static int vocab_add(struct json_writer *w, json_t *vocab, size_t id)
{
    const char *text;
    int err = token_text(w, id, &text);

    if (err)
        return err;
    const json_t *other = json_object_get(vocab, text);
    bool made = kind_of(w, id) == VOCAB_NORMAL || is_added(w, id);
    if (other && !made)
        return 0;
    if (other) {
        size_t first = (size_t)json_integer_value(other);
        if (kind_of(w, first) == VOCAB_NORMAL || is_added(w, first)) {
            log_error("%s: tokens %zu and %zu have one text: tokenizer.json can hold one",
                      w->name, first, id);
            return -ENOTSUP;
        }
    }
    return json_object_set_new(vocab, text, json_integer((json_int_t)id))
               ? log_no_memory("tokenizer.json")
               : 0;
}

static int write_vocab(struct json_writer *w, json_t *vocab)
{
    int err = 0;

    for (size_t id = 0; id < w->t->vocab.n && !err; id++)
        if (kind_of(w, id) != VOCAB_HOLE)
            err = vocab_add(w, vocab, id);
    return err;
}

static json_t *added_json(const struct json_writer *w, size_t id, json_t *text)
{
    bool special = kind_of(w, id) == VOCAB_SPECIAL;

    return json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                     "content", text, "single_word", 0, "lstrip", 0, "rstrip", 0,
                     "normalized", !special && opens(w->t), "special", special);
}

static int write_added(struct json_writer *w, json_t *list)
{
    int err = 0;

    for (size_t id = 0; id < w->t->vocab.n && !err; id++) {
        json_t *text;
        if (!is_added(w, id))
            continue;
        err = token_json(w, (int32_t)id, &text);
        if (!err)
            err = add(list, added_json(w, id, text));
    }
    return err;
}

/* ---- Merges ----------------------------------------------------------------------------------- */

/* Pairs of one rank come from one score, and are in the order of their tokens. */
static int by_rank(const void *a, const void *b)
{
    const struct bpe_merge *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->left > y->left) - (x->left < y->left);
}

static struct bpe_merge *sort_merges(const struct bpe *b)
{
    struct bpe_merge *sorted = malloc((b->n_merges + 1) * sizeof(*sorted));
    size_t n = 0;

    for (size_t i = 0; sorted && i < b->n_slots; i++)
        if (b->merges[i].left >= 0)
            sorted[n++] = b->merges[i];
    if (sorted)
        qsort(sorted, n, sizeof(*sorted), by_rank);
    return sorted;
}

static int write_merge(struct json_writer *w, json_t *list, const struct bpe_merge *m)
{
    json_t *left = NULL, *right = NULL;
    int err = token_json(w, m->left, &left);

    if (!err)
        err = token_json(w, m->right, &right);
    if (!err)
        return add(list, json_pack("[o, o]", left, right));
    json_decref(left);
    return err;
}

static int write_merges(struct json_writer *w, json_t *list)
{
    struct bpe_merge *sorted = sort_merges(&w->t->bpe);
    int err = sorted ? 0 : log_no_memory("tokenizer.json");

    for (size_t i = 0; i < w->t->bpe.n_merges && !err; i++)
        err = write_merge(w, list, &sorted[i]);
    free(sorted);
    return err;
}

/* ---- Normalizer, pre-tokenizer, decoder ------------------------------------------------------- */

/* null, the only one, or a sequence; takes the list over. */
static json_t *sequence(json_t *list, const char *key)
{
    json_t *all = NULL;

    if (json_array_size(list) > 1)
        return json_pack("{s:s, s:o}", "type", "Sequence", key, list);
    all = list ? json_array_get(list, 0) : NULL;
    all = all ? json_incref(all) : json_null();
    json_decref(list);
    return all;
}

/* type: String or Regex. */
static json_t *replace(const char *type, const char *from, const char *to)
{
    return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", type, from,
                     "content", to);
}

/* A token as a regular expression, behind a bar. */
static int quote(struct text *out, const char *token, size_t len)
{
    int err = text_add(out, "|", 1);

    for (size_t i = 0; i < len && !err; i++) {
        if (strchr("\\^$.|?*+()[]{}", token[i]))
            err = text_add(out, "\\", 1);
        if (!err)
            err = text_add(out, token + i, 1);
    }
    return err;
}

/* The start of a text, unless it is empty or begins with a user-defined token. */
static int open_pattern(const struct json_writer *w, struct text *out, bool *user_defined)
{
    const struct vocab *v = &w->t->vocab;
    int err = text_add(out, "\\A(?!\\z", 7);

    *user_defined = false;
    for (size_t id = 0; id < v->n && !err; id++)
        if (kind_of(w, id) == VOCAB_ADDED) {
            err = quote(out, vocab_text(v, id), v->tokens[id].len);
            *user_defined = true;
        }
    return err ? err : text_add(out, ")", 2);
}

/* The library normalises what lies between the tokens that it matched first, so text
 * behind a user-defined token would open with a mark. These are therefore matched later,
 * in normalised text, and the mark is kept away from those at the start of it: it would
 * be part of what is matched. */
static json_t *open_json(struct json_writer *w, const char *mark)
{
    struct text pattern = {0};
    bool user_defined = false;
    json_t *json = NULL;

    if (!open_pattern(w, &pattern, &user_defined))
        json = user_defined ? replace("Regex", pattern.data, mark)
                            : json_pack("{s:s, s:s}", "type", "Prepend", "prepend", mark);
    text_fini(&pattern);
    return json;
}

static json_t *step_json(struct json_writer *w, const struct norm_step *step)
{
    char text[8] = "";

    assert(step->text.len < sizeof(text));
    if (step->text.len)
        memcpy(text, step->text.data, step->text.len);
    if (step->kind == NORM_NFC)
        return json_pack("{s:s}", "type", "NFC");
    return step->kind == NORM_OPEN
               ? open_json(w, text)
               : replace("String", pattern_source(step->pattern), text);
}

static json_t *normalizer_json(struct json_writer *w)
{
    json_t *list = json_array();

    for (size_t i = 0; i < w->t->normalizer.n; i++)
        json_array_append_new(list, step_json(w, &w->t->normalizer.steps[i]));
    return sequence(list, "normalizers");
}

static json_t *byte_level(bool regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                     "trim_offsets", 1, "use_regex", regex);
}

/* Patterns that have a name in such files go by it. */
static json_t *pre_json(const struct tokenizer *t)
{
    json_t *list = json_array();
    bool gpt2 = false;

    if (!t->bpe.byte_level)
        return sequence(list, "pretokenizers");
    for (size_t i = 0; i < t->pre.n; i++) {
        const char *regex = pattern_source(t->pre.steps[i].pattern);
        gpt2 = i + 1 == t->pre.n && !strcmp(regex, PATTERN_GPT2);
        if (!strcmp(regex, "\\p{N}"))
            json_array_append_new(
                list, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
        else if (!gpt2)
            json_array_append_new(list, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type",
                                                  "Split", "pattern", "Regex", regex,
                                                  "behavior", "Isolated", "invert", 0));
    }
    json_array_append_new(list, byte_level(gpt2));
    return sequence(list, "pretokenizers");
}

static json_t *decoder_json(const struct tokenizer *t)
{
    if (t->bpe.byte_level)
        return byte_level(true);
    json_t *list = json_pack("[o, {s:s}, {s:s}]", replace("String", t->decoder.mark, " "),
                             "type", "ByteFallback", "type", "Fuse");
    if (t->decoder.strip)
        json_array_append_new(list, json_pack("{s:s, s:s, s:I, s:i}", "type", "Strip",
                                              "content", " ", "start",
                                              (json_int_t)t->decoder.strip, "stop", 0));
    return sequence(list, "decoders");
}

/* ---- The file --------------------------------------------------------------------------------- */

static json_t *template_sequence(const char *id)
{
    return json_pack("{s:{s:s, s:i}}", "Sequence", "id", id, "type_id", 0);
}

/* The start token before a text and before each of two. */
static int post_json(struct json_writer *w, json_t **out)
{
    json_t *text;

    *out = json_null();
    if (!w->t->n_bos)
        return 0;
    int err = token_json(w, w->t->bos[0], &text);
    if (err)
        return err;
    json_t *bos = json_pack("{s:{s:O, s:i}}", "SpecialToken", "id", text, "type_id", 0);
    *out = json_pack("{s:s, s:[O, o], s:[O, o, O, o], s:{s:{s:O, s:[i], s:[O]}}}", "type",
                     "TemplateProcessing", "single", bos, template_sequence("A"), "pair",
                     bos, template_sequence("A"), bos, template_sequence("B"),
                     "special_tokens", json_string_value(text), "id", text, "ids",
                     w->t->bos[0], "tokens", text);
    json_decref(bos);
    json_decref(text);
    return *out ? 0 : log_no_memory("tokenizer.json");
}

static int model_json(struct json_writer *w, json_t **out)
{
    const struct bpe *b = &w->t->bpe;
    json_t *unknown = json_null(), *vocab = json_object(), *merges = json_array();
    int err = write_vocab(w, vocab);

    if (!err)
        err = write_merges(w, merges);
    if (!err && b->unknown >= 0)
        err = token_json(w, b->unknown, &unknown);
    if (err) {
        json_decref(vocab);
        json_decref(merges);
        return err;
    }
    *out = json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                     "dropout", "unk_token", unknown, "continuing_subword_prefix",
                     "end_of_word_suffix", "fuse_unk", b->fuse_unknown, "byte_fallback",
                     b->fallback, "ignore_merges", b->ignore_merges, "vocab", vocab,
                     "merges", merges);
    return *out ? 0 : log_no_memory("tokenizer.json");
}

static int write_root(struct json_writer *w, json_t **out)
{
    json_t *model = NULL, *post = NULL, *added = json_array();
    int err = model_json(w, &model);

    if (!err)
        err = write_added(w, added);
    if (!err)
        err = post_json(w, &post);
    if (err) {
        json_decref(model);
        json_decref(added);
        return err;
    }
    *out =
        json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                  "truncation", "padding", "added_tokens", added, "normalizer",
                  normalizer_json(w), "pre_tokenizer", pre_json(w->t), "post_processor",
                  post, "decoder", decoder_json(w->t), "model", model);
    return *out ? 0 : log_no_memory("tokenizer.json");
}

int tokenizer_write_json(json_t **out, const struct tokenizer *t, const char *name)
{
    struct json_writer w = {.t = t, .name = name};
    int err = write_root(&w, out);

    text_fini(&w.scratch);
    return err;
}
