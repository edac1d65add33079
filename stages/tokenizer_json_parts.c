/* tokenizer.json: normalizer, pre-tokenizer, decoder, post-processor. Every one is an
 * object with a type; what is unknown is refused by that name. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "stages/doc.h"
#include "stages/file.h"
#include "stages/patterns.h"
#include "stages/tokenizer_parts.h"

#define MARK "\xe2\x96\x81" /* U+2581, a space in SentencePiece's vocabularies */

/* What a part is called, and what reads one type of it. */
struct type_reader {
    const char *type;
    int (*read)(struct tokenizer *t, const json_t *part, const char *name);
};

static int refuse(const char *name, const char *what, const char *type)
{
    char text[48];
    log_error("%s: %s \"%s\" is not supported", name, what,
              file_text(text, sizeof(text), type, strlen(type)));
    return -ENOTSUP;
}

static int wrong(const char *name, const char *what, const char *why)
{
    log_error("%s: %s: %s", name, what, why);
    return -EINVAL;
}

/* Reads a part by its type with one of (n) readers. */
static int read_part(struct tokenizer *t, const json_t *part, const char *what,
                     const struct type_reader *readers, size_t n, const char *name)
{
    if (!part || json_is_null(part))
        return 0;
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!type)
        return wrong(name, what, "no \"type\"");
    for (size_t i = 0; i < n; i++)
        if (!strcmp(readers[i].type, type))
            return readers[i].read(t, part, name);
    return refuse(name, what, type);
}

/* Reads the list of a Sequence. */
static int read_list(struct tokenizer *t, const json_t *part, const char *key,
                     int (*read)(struct tokenizer *, const json_t *, const char *),
                     const char *name)
{
    const json_t *list = json_object_get(part, key);
    int err = json_is_array(list) ? 0 : wrong(name, key, "not a list");

    for (size_t i = 0; !err && i < json_array_size(list); i++)
        err = read(t, json_array_get(list, i), name);
    return err;
}

/* A pattern: {"String": text} or {"Regex": text}. */
static int read_pattern(struct pattern **out, const json_t *part, const char *name)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const char *literal = json_string_value(json_object_get(pattern, "String"));
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *text = literal ? literal : regex;

    if (!text || !*text)
        return wrong(name, "pattern", "neither a \"String\" nor a \"Regex\"");
    return pattern_create(out, text, strlen(text), literal != NULL, name);
}

static int norm_form(struct tokenizer *t, const json_t *part, const char *name)
{
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    const char *type = json_string_value(json_object_get(part, "type"));

    (void)name;
    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        if (!strcmp(type, forms[i]))
            return normalizer_add(
                &t->normalizer, (struct norm_step){.kind = NORM_NFC + (enum norm_kind)i});
    return 0;
}

static int norm_prepend(struct tokenizer *t, const json_t *part, const char *name)
{
    struct norm_step step = {.kind = NORM_PREPEND};
    const char *text = json_string_value(json_object_get(part, "prepend"));

    if (!text)
        return wrong(name, "normalizer Prepend", "no \"prepend\"");
    int err = text_add(&step.text, text, strlen(text));
    return err ? err : normalizer_add(&t->normalizer, step);
}

static int norm_replace(struct tokenizer *t, const json_t *part, const char *name)
{
    struct norm_step step = {.kind = NORM_REPLACE};
    const char *text = json_string_value(json_object_get(part, "content"));

    if (!text)
        return wrong(name, "normalizer Replace", "no \"content\"");
    int err = read_pattern(&step.pattern, part, name);
    if (err)
        return err;
    err = text_add(&step.text, text, strlen(text));
    if (!err)
        return normalizer_add(&t->normalizer, step);
    pattern_destroy(step.pattern);
    return err;
}

static int norm_sequence(struct tokenizer *t, const json_t *part, const char *name)
{
    return read_list(t, part, "normalizers", tokenizer_json_normalizer, name);
}

int tokenizer_json_normalizer(struct tokenizer *t, const json_t *part, const char *name)
{
    static const struct type_reader readers[] = {
        {"NFC", norm_form},          {"NFD", norm_form},        {"NFKC", norm_form},
        {"NFKD", norm_form},         {"Prepend", norm_prepend}, {"Replace", norm_replace},
        {"Sequence", norm_sequence},
    };
    return read_part(t, part, "normalizer", readers, ARRAY_LEN(readers), name);
}

static int split_behavior(enum pre_behavior *out, const json_t *part, const char *name)
{
    static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    const char *text = json_string_value(json_object_get(part, "behavior"));

    for (size_t i = 0; text && i < ARRAY_LEN(behaviors); i++) {
        if (strcmp(text, behaviors[i]))
            continue;
        *out = (enum pre_behavior)i;
        return 0;
    }
    return refuse(name, "pre-tokenizer Split with behavior", text ? text : "");
}

static int pre_split(struct tokenizer *t, const json_t *part, const char *name)
{
    struct pre_step step = {.kind = PRE_SPLIT};
    int err = split_behavior(&step.behavior, part, name);

    if (!err)
        err = doc_flag(&step.invert, part, "invert", name);
    if (!err)
        err = read_pattern(&step.pattern, part, name);
    return err ? err : pretokenizer_add(&t->pre, step);
}

static int pre_digits(struct tokenizer *t, const json_t *part, const char *name)
{
    bool individual = false;
    int err = doc_flag(&individual, part, "individual_digits", name);
    return err ? err
               : pretokenizer_split(&t->pre, individual ? "\\p{N}" : "\\p{N}+", name);
}

static int pre_byte_level(struct tokenizer *t, const json_t *part, const char *name)
{
    bool prefix = true, regex = true;
    int err = doc_flag(&prefix, part, "add_prefix_space", name);

    if (!err)
        err = doc_flag(&regex, part, "use_regex", name);
    if (!err && prefix)
        err = pretokenizer_add(&t->pre, (struct pre_step){.kind = PRE_SPACE});
    if (!err && regex)
        err = pretokenizer_split(&t->pre, PATTERN_GPT2, name);
    t->bpe.byte_level = true;
    return err;
}

static int metaspace_scheme(enum pre_scheme *out, const json_t *part, const char *name)
{
    static const char *const schemes[] = {"always", "first", "never"};
    const char *text = NULL;
    bool prefix = true;
    int err = doc_flag(&prefix, part, "add_prefix_space", name);

    if (!err)
        err = doc_string(&text, part, "prepend_scheme", name);
    *out = prefix ? PRE_ALWAYS : PRE_NEVER;
    if (err || !text)
        return err;
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        if (strcmp(text, schemes[i]))
            continue;
        *out = (enum pre_scheme)i;
        return 0;
    }
    return refuse(name, "pre-tokenizer Metaspace with prepend_scheme", text);
}

static int pre_metaspace(struct tokenizer *t, const json_t *part, const char *name)
{
    struct pre_step mark = {.kind = PRE_METASPACE, .mark = MARK};
    struct pre_step cut = {.kind = PRE_SPLIT, .behavior = PRE_NEXT};
    const char *text = MARK;
    bool split = true;
    int err = metaspace_scheme(&mark.scheme, part, name);

    if (!err)
        err = doc_string(&text, part, "replacement", name);
    if (!err && strcmp(text, MARK))
        return refuse(name, "pre-tokenizer Metaspace with replacement", text);
    if (!err)
        err = doc_flag(&split, part, "split", name);
    if (!err)
        err = pretokenizer_add(&t->pre, mark);
    if (err || !split)
        return err;
    err = pattern_create(&cut.pattern, MARK, strlen(MARK), true, name);
    return err ? err : pretokenizer_add(&t->pre, cut);
}

static int pre_sequence(struct tokenizer *t, const json_t *part, const char *name)
{
    return read_list(t, part, "pretokenizers", tokenizer_json_pre, name);
}

int tokenizer_json_pre(struct tokenizer *t, const json_t *part, const char *name)
{
    static const struct type_reader readers[] = {
        {"Split", pre_split},          {"Digits", pre_digits},
        {"ByteLevel", pre_byte_level}, {"Metaspace", pre_metaspace},
        {"Sequence", pre_sequence},
    };
    /* Behind ByteLevel, patterns would see its alphabet instead of the text. */
    if (t->bpe.byte_level && part)
        return wrong(name, "pre-tokenizer", "ByteLevel is not the last one");
    return read_part(t, part, "pre-tokenizer", readers, ARRAY_LEN(readers), name);
}

static int decode_byte_level(struct tokenizer *t, const json_t *part, const char *name)
{
    (void)part;
    return t->bpe.byte_level ? 0 : wrong(name, "decoder ByteLevel", "the model is not");
}

static int decode_replace(struct tokenizer *t, const json_t *part, const char *name)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const char *from = json_string_value(json_object_get(pattern, "String"));
    const char *to = json_string_value(json_object_get(part, "content"));

    if (!from || !to || strcmp(to, " ") || strcmp(from, MARK))
        return refuse(name, "decoder Replace with pattern", from ? from : "");
    strcpy(t->decoder.mark, MARK);
    return 0;
}

static int decode_fallback(struct tokenizer *t, const json_t *part, const char *name)
{
    (void)part, (void)name;
    t->decoder.bytes = true;
    return 0;
}

static int decode_fuse(struct tokenizer *t, const json_t *part, const char *name)
{
    (void)t, (void)part, (void)name;
    return 0;
}

static int decode_strip(struct tokenizer *t, const json_t *part, const char *name)
{
    const char *content = json_string_value(json_object_get(part, "content"));
    size_t stop = 0;
    int err = doc_size(&t->decoder.strip, part, "start", 0, 1 << 20, name);

    if (!err)
        err = doc_size(&stop, part, "stop", 0, 1 << 20, name);
    if (!err && (stop || !content || strcmp(content, " ")))
        return refuse(name, "decoder Strip with content", content ? content : "");
    return err;
}

static int read_decoder(struct tokenizer *t, const json_t *part, const char *name);

static int decode_sequence(struct tokenizer *t, const json_t *part, const char *name)
{
    return read_list(t, part, "decoders", read_decoder, name);
}

static int read_decoder(struct tokenizer *t, const json_t *part, const char *name)
{
    static const struct type_reader readers[] = {
        {"ByteLevel", decode_byte_level},  {"Replace", decode_replace},
        {"ByteFallback", decode_fallback}, {"Fuse", decode_fuse},
        {"Strip", decode_strip},           {"Sequence", decode_sequence},
    };
    return read_part(t, part, "decoder", readers, ARRAY_LEN(readers), name);
}

int tokenizer_json_decoder(struct tokenizer *t, const json_t *part, const char *name)
{
    if (!part || json_is_null(part))
        return wrong(name, "decoder", "there is none: ByteLevel was expected");
    int err = read_decoder(t, part, name);
    if (!err && t->bpe.byte_level && (t->decoder.mark[0] || t->decoder.bytes))
        return wrong(name, "decoder", "the model is byte-level, it is not");
    return err;
}

static int post_byte_level(struct tokenizer *t, const json_t *part, const char *name)
{
    (void)t, (void)part, (void)name;
    return 0;
}

/* The ids of a special token that stands before the text. */
static int add_bos(struct tokenizer *t, const json_t *part, const char *token,
                   const char *name)
{
    const json_t *known = json_object_get(part, "special_tokens");
    const json_t *ids =
        json_object_get(token ? json_object_get(known, token) : NULL, "ids");

    if (!json_is_array(ids))
        return wrong(name, "post-processor TemplateProcessing",
                     "a special token has no ids");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *value = json_array_get(ids, i);
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (size_t)id >= t->vocab.n || t->n_bos == TOKENIZER_MAX_BOS)
            return wrong(name, "post-processor TemplateProcessing",
                         "a special token is not in the vocabulary");
        t->bos[t->n_bos++] = (int32_t)id;
    }
    return 0;
}

/* Tokens behind the text end it, which no prompt wants: they are left out. */
static int post_template(struct tokenizer *t, const json_t *part, const char *name)
{
    const json_t *single = json_object_get(part, "single");
    int err = json_is_array(single) ? 0
                                    : wrong(name, "post-processor TemplateProcessing",
                                            "no list \"single\"");

    for (size_t i = 0; !err && i < json_array_size(single); i++) {
        const json_t *item = json_array_get(single, i);
        if (json_object_get(item, "Sequence"))
            break;
        const json_t *token =
            json_object_get(json_object_get(item, "SpecialToken"), "id");
        err = add_bos(t, part, json_string_value(token), name);
    }
    return err;
}

static int post_sequence(struct tokenizer *t, const json_t *part, const char *name)
{
    return read_list(t, part, "processors", tokenizer_json_post, name);
}

int tokenizer_json_post(struct tokenizer *t, const json_t *part, const char *name)
{
    static const struct type_reader readers[] = {
        {"ByteLevel", post_byte_level},
        {"TemplateProcessing", post_template},
        {"Sequence", post_sequence},
    };
    return read_part(t, part, "post-processor", readers, ARRAY_LEN(readers), name);
}
