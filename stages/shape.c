/* Models that have sizes but no files: random weights for benchmarks and tests. */
#include <sys/stat.h>

#include "stages/file.h"
#include "stages/hf.h"

/* Sizes from a folder with a config.json, from such a file, or by name. */
static int read_shape(struct model_config *c, const char *shape)
{
    struct stat st;
    struct file_map map;
    int err;

    if (stat(shape, &st))
        return model_shape(c, shape);
    if (S_ISDIR(st.st_mode))
        return hf_config_open(c, shape);
    err = file_map(&map, shape);
    if (err)
        return err;
    err = hf_config_parse(c, (const char *)map.data, map.bytes, shape);
    file_unmap(&map);
    return err;
}

int model_open_shape(struct model **out, const char *shape, uint64_t seed)
{
    struct model_config config = {0};
    int err = read_shape(&config, shape);
    return err ? err : model_random(out, &config, seed);
}
