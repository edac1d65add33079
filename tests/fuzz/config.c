/* Fuzz target: any bytes as config.json, then as generation_config.json; a table of what
 * is accepted. */
#include "stages/hf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static float table[8 * 256];
    struct model_config c;

    log_set_level((enum log_level) - 1); /* silent */
    if (hf_config_parse(&c, (const char *)data, size, "fuzz"))
        return 0;
    hf_generation_parse(&c, (const char *)data, size, "fuzz");
    model_rope_table(&c, table, 8);
    return 0;
}
