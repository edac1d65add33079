/* Model folders: files of a Hugging Face folder are copied, those of other models are
 * made. */
#include "stages/hf_write.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/doc.h"
#include "stages/file.h"
#include "stages/gguf.h"
#include "stages/output.h"
#include "stages/tokenizer_parts.h"

static int write_file(const char *dir, const char *file, const void *data, size_t bytes)
{
    struct output output;
    char *path;
    int err = file_join(&path, dir, file);

    if (err)
        return err;
    err = output_open(&output, path);
    if (!err) {
        errno = 0;
        if (fwrite(data, 1, bytes, output.f) != bytes)
            err = errno ? -errno : -EIO;
        err = output_close(&output, err);
    }
    free(path);
    return err;
}

/* The fewest digits that mean the same numbers: 1e-5 instead of 1.0000000000000001e-5. */
static char *dump(const json_t *value)
{
    bool same = false;
    char *text = NULL;

    for (size_t digits = 8; digits <= 17 && !same; digits++) {
        free(text);
        text = json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, 0, NULL) : NULL;
        same = json_equal(value, back);
        json_decref(back);
    }
    return text;
}

/* Takes the value over. */
static int write_json(const char *dir, const char *file, json_t *value)
{
    char *text = dump(value);
    size_t len = text ? strlen(text) : 0;
    int err = text ? 0 : log_no_memory(file);

    if (text) {
        text[len] = '\n'; /* in the terminator's place */
        err = write_file(dir, file, text, len + 1);
    }
    free(text);
    json_decref(value);
    return err;
}

/* ---- From a folder ---------------------------------------------------------------------------- */

static int copy_if_there(const char *dir, const char *from, const char *file)
{
    struct file_map map;
    char *path;
    int err = file_join(&path, from, file);

    if (err)
        return err;
    if (!access(path, F_OK)) {
        err = file_map(&map, path);
        if (!err) {
            err = write_file(dir, file, map.data, map.bytes);
            file_unmap(&map);
        }
    }
    free(path);
    return err;
}

/* The same configuration; transformers has called the element type by two keys. */
static int copy_config(const char *dir, const char *from, const char *dtype)
{
    json_t *root = NULL;
    char *path;
    int err = file_join(&path, from, "config.json");

    if (err)
        return err;
    err = doc_open(&root, path);
    free(path);
    if (err)
        return err;
    if (json_object_set_new(root, "torch_dtype", json_string(dtype)) ||
        (json_object_get(root, "dtype") &&
         json_object_set_new(root, "dtype", json_string(dtype)))) {
        json_decref(root);
        return log_no_memory("config.json");
    }
    return write_json(dir, "config.json", root);
}

static int write_copies(const char *dir, const struct model *m, const char *dtype)
{
    static const char *const files[] = {
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "merges.txt",
        "tokenizer.model",
        "chat_template.jinja",
    };
    int err = copy_config(dir, m->dir, dtype);

    for (size_t i = 0; i < ARRAY_LEN(files) && !err; i++)
        err = copy_if_there(dir, m->dir, files[i]);
    return err;
}

/* ---- Made ------------------------------------------------------------------------------------- */

/* The text of the token whose id is at a key of the metadata, if it is a special token:
 * transformers would make it one. */
static void add_token(json_t *config, const char *as, const struct model *m,
                      const struct tokenizer *t, const char *key)
{
    const struct gguf_kv *kv = gguf_find(m->gguf, key);
    int64_t id;

    if (!kv || kv->array || gguf_int(&id, kv, 0) || id < 0 || (size_t)id >= t->vocab.n ||
        t->vocab.tokens[id].kind != VOCAB_SPECIAL)
        return;
    json_object_set_new(
        config, as,
        json_stringn(vocab_text(&t->vocab, (size_t)id), t->vocab.tokens[id].len));
}

static int tokenizer_config_json(json_t **out, const struct model *m,
                                 const struct tokenizer *t)
{
    const struct gguf_kv *kv = gguf_find(m->gguf, "tokenizer.chat_template");
    struct gguf_str template;
    json_t *o = json_pack("{s:s, s:b, s:b, s:b, s:I}", "tokenizer_class",
                          "PreTrainedTokenizerFast", "add_bos_token", t->n_bos > 0,
                          "add_eos_token", 0, "clean_up_tokenization_spaces", 0,
                          "model_max_length", (json_int_t)m->config.max_positions);

    if (!o)
        return log_no_memory("tokenizer_config.json");
    add_token(o, "bos_token", m, t, "tokenizer.ggml.bos_token_id");
    add_token(o, "eos_token", m, t, "tokenizer.ggml.eos_token_id");
    add_token(o, "pad_token", m, t, "tokenizer.ggml.padding_token_id");
    add_token(o, "unk_token", m, t, "tokenizer.ggml.unknown_token_id");
    *out = o;
    if (!kv || gguf_string(&template, kv))
        return 0;
    json_t *text = json_stringn(template.data, template.len);
    if (text)
        return json_object_set_new(o, "chat_template", text)
                   ? log_no_memory("tokenizer_config.json")
                   : 0;
    json_decref(o);
    log_error("%s: its chat template is not valid UTF-8", m->path);
    return -EINVAL;
}

static int write_tokenizer(const char *dir, const struct model *m,
                           const struct tokenizer *t)
{
    json_t *json;
    int err = tokenizer_write_json(&json, t, m->path);

    if (!err)
        err = write_json(dir, "tokenizer.json", json);
    if (!err)
        err = tokenizer_config_json(&json, m, t);
    return err ? err : write_json(dir, "tokenizer_config.json", json);
}

static int write_made(const char *dir, const struct model *m, const char *dtype)
{
    struct tokenizer *t = NULL;
    json_t *config, *generation;
    int err = hf_config_json(&config, &m->config, dtype, m->path);

    if (!err)
        err = write_json(dir, "config.json", config);
    if (!err)
        err = hf_generation_json(&generation, &m->config, m->path);
    if (!err)
        err = write_json(dir, "generation_config.json", generation);
    if (!err)
        err = tokenizer_open(&t, m);
    if (!err && t)
        err = write_tokenizer(dir, m, t);
    tokenizer_close(t);
    return err;
}

int hf_write(const char *dir, const struct model *m, const char *dtype)
{
    return m->dir ? write_copies(dir, m, dtype) : write_made(dir, m, dtype);
}
