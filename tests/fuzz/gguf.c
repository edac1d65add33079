/* Fuzz target: any bytes as a GGUF file; what is accepted is bound to roles and read. */
#include <stdlib.h>

#include "stages/source.h"

#define MOST_ELEMENTS 4096

static void read_some(const struct model *m)
{
    static float out[MOST_ELEMENTS];
    for (size_t i = 0; i < m->config.L * MODEL_WEIGHT_COUNT; i++) {
        const struct model_tensor *t = &m->tensors[i];
        if (!t->data)
            continue;
        size_t rows = MOST_ELEMENTS / t->cols;
        model_read(m, out, (enum model_weight)(i % MODEL_WEIGHT_COUNT),
                   i / MODEL_WEIGHT_COUNT, 0, rows < t->rows ? rows : t->rows);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model *m = calloc(1, sizeof(*m));

    log_set_level((enum log_level) - 1); /* silent */
    if (!gguf_parse(&m->gguf, data, size, "fuzz") &&
        !source_gguf_config(m, m->gguf, "fuzz") && !source_bind(m, "fuzz"))
        read_some(m);
    model_close(m);
    return 0;
}
