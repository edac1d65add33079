/* Fuzz target: any bytes as tokenizer.json; what is accepted encodes a text, which is
 * decoded. */
#include <stdlib.h>
#include <string.h>

#include "stages/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "I'm 12 <a>  caf\xc3\xa9 e\xcc\x81\xff\xe4\xbd\xa0\n\n aab";
    struct tokenizer *t;
    int32_t *ids;
    size_t n, len;
    char *back;

    log_set_level((enum log_level) - 1); /* silent */
    if (tokenizer_parse_json(&t, (const char *)data, size, "fuzz"))
        return 0;
    for (int special = 0; special < 2; special++) {
        if (tokenizer_encode(t, &ids, &n, text, strlen(text), special, true))
            continue;
        if (!tokenizer_decode(t, &back, &len, ids, n, special))
            free(back);
        free(ids);
    }
    tokenizer_close(t);
    return 0;
}
