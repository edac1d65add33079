/* Fuzz target: a byte that picks the format, then any bytes as a file of training data;
 * every sequence of what is accepted is looked at. */
#include <stdlib.h>
#include <string.h>

#include "stages/data.h"
#include "stages/tokenizer.h"

enum { VOCABULARY = 3, POSITIONS = 2 };

static const char tokenizer[] =
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, "
    "\"merges\": [\"a b\"]}, \"decoder\": {\"type\": \"Fuse\"}}";

static void look(struct data *d)
{
    const int32_t *ids;
    size_t n;

    for (size_t i = 0; i < data_sequences(d) + data_held_out(d); i++) {
        if (i < data_sequences(d))
            data_get(d, i, &ids, &n);
        else
            data_get_held_out(d, i - data_sequences(d), &ids, &n);
        if (n < 2 || n > POSITIONS + 1)
            abort();
        for (size_t k = 0; k < n; k++)
            if (ids[k] < 0 || ids[k] >= VOCABULARY)
                abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const paths[] = {"fuzz.jsonl", "fuzz.json", "fuzz.txt"};
    static struct tokenizer *t;
    struct data *d;

    log_set_level((enum log_level) - 1); /* silent */
    if (!t && tokenizer_parse_json(&t, tokenizer, strlen(tokenizer), "fuzz"))
        abort();
    if (!size)
        return 0;
    struct data_config c = {.path = paths[data[0] % 3],
                            .tokenizer = t,
                            .eos = data[0] & 4 ? 1 : -1,
                            .vocabulary = VOCABULARY,
                            .positions = POSITIONS,
                            .pack = data[0] & 8,
                            .shuffle = data[0] & 16,
                            .held_out = data[0] & 32 ? 0.5 : 0};
    if (data_parse(&d, &c, (const char *)data + 1, size - 1))
        return 0;
    look(d);
    data_close(d);
    return 0;
}
