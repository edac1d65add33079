/* For tests of files that must be refused: the right error, and exactly one line that
 * names the fault. */
#ifndef PENSTOCK_STAGES_REFUSE_H
#define PENSTOCK_STAGES_REFUSE_H

#include <math.h>

#include "stages/model.h"
#include "tests/stages-files.h"

/* Reads every weight of a model. */
static inline int read_whole(const struct model *m)
{
    int err = 0;

    for (size_t i = 0; i < m->config.L * MODEL_WEIGHT_COUNT && !err; i++) {
        enum model_weight w = (enum model_weight)(i % MODEL_WEIGHT_COUNT);
        const struct model_tensor *t = &m->tensors[i];
        if (!t->data)
            continue;
        float *out = malloc(t->rows * t->cols * sizeof(*out));
        err = model_read(m, out, w, i / MODEL_WEIGHT_COUNT, 0, t->rows);
        free(out);
    }
    return err;
}

/* Opens and reads a model. what: for the message of a failure; says: a part of the
 * line. */
static inline void refuse(const char *what, const char *path, int want, const char *says)
{
    struct capture c = capture_begin();
    struct model *m;
    int err = model_open(&m, path);

    if (!err)
        err = read_whole(m);
    model_close(m);
    char *text = capture_end(c);
    if (err != want || !capture_is_one_line(text) || !strstr(text, says))
        fail_msg("%s: error %d, but %d with \"%s\" was expected: %s", what, err, want,
                 says, text);
    if (getenv("SHOW_REFUSALS"))
        fprintf(stderr, "%s", text);
    free(text);
}

static inline void accept(const char *path)
{
    struct model *m;

    assert_int_equal(model_open(&m, path), 0);
    assert_int_equal(read_whole(m), 0);
    model_close(m);
}

#endif
