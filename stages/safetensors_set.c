/* The safetensors files of a model's folder. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stages/doc.h"
#include "stages/safetensors.h"

#define SINGLE     "model.safetensors"
#define INDEX      "model.safetensors.index.json"
#define NAME_SHOWN 256

static int add_file(struct safetensors_set *set, const char *dir, const char *name)
{
    char *path;
    int err = file_join(&path, dir, name);

    if (err)
        return err;
    err = safetensors_open(&set->files[set->n_files], path);
    free(path);
    if (err)
        return err;
    set->n_tensors += set->files[set->n_files]->n;
    set->names[set->n_files++] = strdup(name);
    return set->names[set->n_files - 1] ? 0 : file_no_memory(dir);
}

static const struct safetensors *file_of(const struct safetensors_set *set,
                                         const char *name)
{
    for (size_t i = 0; i < set->n_files; i++)
        if (!strcmp(set->names[i], name))
            return set->files[i];
    return NULL;
}

/* A shard lies in the folder itself: its name is no path, and printable. */
static int check_shard(const json_t *shard, const char *index)
{
    const char *name = json_string_value(shard);
    char text[NAME_SHOWN] = "weight_map";

    if (name)
        file_text(text, sizeof(text), name, strlen(name));
    if (name && *name && !strcmp(name, text) && !strchr(name, '/') && strcmp(name, ".") &&
        strcmp(name, ".."))
        return 0;
    log_error("%s: \"%s\" is not the name of a file in its folder", index, text);
    return -EINVAL;
}

/* Opens every shard once. The number of files is bounded by that of tensors. */
static int open_shards(struct safetensors_set *set, const json_t *map, const char *dir,
                       const char *index)
{
    const char *tensor;
    json_t *shard;

    set->files = calloc(json_object_size(map) + 1, sizeof(*set->files));
    set->names = calloc(json_object_size(map) + 1, sizeof(*set->names));
    if (!set->files || !set->names)
        return file_no_memory(index);
    json_object_foreach((json_t *)map, tensor, shard)
    {
        int err = check_shard(shard, index);
        if (!err && !file_of(set, json_string_value(shard)))
            err = add_file(set, dir, json_string_value(shard));
        if (err)
            return err;
    }
    return 0;
}

/* Every tensor of the index lies in the shard that it names. */
static int check_index(const struct safetensors_set *set, const json_t *map,
                       const char *index)
{
    char text[NAME_SHOWN];
    const char *tensor;
    json_t *shard;

    json_object_foreach((json_t *)map, tensor, shard)
    {
        const char *name = json_string_value(shard);
        if (safetensors_find(file_of(set, name), tensor))
            continue;
        log_error("%s: tensor %s is not in %s", index,
                  file_text(text, sizeof(text), tensor, strlen(tensor)), name);
        return -EINVAL;
    }
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* No two shards have a tensor of one name. */
static int check_unique(const struct safetensors_set *set, const char *index)
{
    const char **names = calloc(set->n_tensors + 1, sizeof(*names));
    size_t n = 0;
    char text[NAME_SHOWN];
    int err = 0;

    if (!names)
        return file_no_memory(index);
    for (size_t f = 0; f < set->n_files; f++)
        for (size_t i = 0; i < set->files[f]->n; i++)
            names[n++] = set->files[f]->tensors[i].name;
    qsort(names, n, sizeof(*names), compare_names);
    for (size_t i = 1; i < n && !err; i++) {
        if (strcmp(names[i - 1], names[i]))
            continue;
        log_error("%s: two shards have a tensor %s", index,
                  file_text(text, sizeof(text), names[i], strlen(names[i])));
        err = -EINVAL;
    }
    free(names);
    return err;
}

static int open_index(struct safetensors_set *set, const char *dir, const char *index)
{
    json_t *doc;
    int err = doc_open(&doc, index);

    if (err)
        return err;
    const json_t *map = json_object_get(doc, "weight_map");
    if (!json_is_object(map) || !json_object_size(map)) {
        log_error("%s: it has no \"weight_map\"", index);
        err = -EINVAL;
    }
    if (!err && !(err = open_shards(set, map, dir, index)) &&
        !(err = check_index(set, map, index)))
        err = check_unique(set, index);
    json_decref(doc);
    return err;
}

static int open_single(struct safetensors_set *set, const char *dir)
{
    set->files = calloc(1, sizeof(*set->files));
    set->names = calloc(1, sizeof(*set->names));
    if (!set->files || !set->names)
        return file_no_memory(dir);
    return add_file(set, dir, SINGLE);
}

static int open_folder(struct safetensors_set *set, const char *dir)
{
    char *single = NULL, *index = NULL;
    int err;

    if ((err = file_join(&single, dir, SINGLE)) || (err = file_join(&index, dir, INDEX)))
        goto out;
    if (!access(single, F_OK)) {
        err = open_single(set, dir);
    } else if (!access(index, F_OK)) {
        err = open_index(set, dir, index);
    } else {
        log_error("%s: neither " SINGLE " nor " INDEX " is there: convert the weights to "
                  "safetensors",
                  dir);
        err = -ENOENT;
    }
out:
    free(single);
    free(index);
    return err;
}

int safetensors_set_open(struct safetensors_set **out, const char *dir)
{
    struct safetensors_set *set = calloc(1, sizeof(*set));

    *out = NULL;
    if (!set)
        return file_no_memory(dir);
    int err = open_folder(set, dir);
    if (err)
        safetensors_set_close(set);
    else
        *out = set;
    return err;
}

void safetensors_set_close(struct safetensors_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->n_files; i++) {
        safetensors_close(set->files[i]);
        free(set->names[i]);
    }
    free(set->files);
    free(set->names);
    free(set);
}

const struct safetensors_tensor *safetensors_set_find(const struct safetensors_set *set,
                                                      const char *name)
{
    const struct safetensors_tensor *t = NULL;

    for (size_t i = 0; i < set->n_files && !t; i++)
        t = safetensors_find(set->files[i], name);
    return t;
}
