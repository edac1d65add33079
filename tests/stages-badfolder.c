/* Malformed, impossible and unsupported Hugging Face folders: each is refused with the
 * right error and exactly one line that names the fault. A small valid folder is spoilt
 * in one place at a time. */
#include "tests/stages-refuse.h"

#define CONFIG                                                                           \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", "            \
    "\"hidden_act\": \"silu\", \"vocab_size\": 8, \"hidden_size\": 32, "                 \
    "\"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "  \
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"rms_norm_eps\": 1e-05, "             \
    "\"max_position_embeddings\": 64, \"rope_scaling\": {\"rope_type\": \"llama3\", "    \
    "\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "             \
    "\"original_max_position_embeddings\": 32}, \"rope_theta\": 10000.0, "               \
    "\"tie_word_embeddings\": false, \"eos_token_id\": [1, 2]}"

/* The header of a valid model.safetensors. */
#define LAYER "\"model.layers.0."
#define HEADER                                                                           \
    "{\"__metadata__\": {\"format\": \"pt\"}, "                                          \
    "\"model.embed_tokens.weight\": {\"dtype\": \"F32\", \"shape\": [8, 32], "           \
    "\"data_offsets\": [0, 1024]}, "                                                     \
    "\"lm_head.weight\": {\"dtype\": \"F32\", \"shape\": [8, 32], "                      \
    "\"data_offsets\": [1024, 2048]}, "                                                  \
    "\"model.norm.weight\": {\"dtype\": \"F32\", \"shape\": [32], "                      \
    "\"data_offsets\": [2048, 2176]}, " LAYER                                            \
    "input_layernorm.weight\": {\"dtype\": \"F32\", \"shape\": [32], "                   \
    "\"data_offsets\": [2176, 2304]}, " LAYER                                            \
    "post_attention_layernorm.weight\": {\"dtype\": \"F32\", \"shape\": [32], "          \
    "\"data_offsets\": [2304, 2432]}, " LAYER                                            \
    "self_attn.q_proj.weight\": {\"dtype\": \"F16\", \"shape\": [32, 32], "              \
    "\"data_offsets\": [2432, 4480]}, " LAYER                                            \
    "self_attn.k_proj.weight\": {\"dtype\": \"BF16\", \"shape\": [16, 32], "             \
    "\"data_offsets\": [4480, 5504]}, " LAYER                                            \
    "self_attn.v_proj.weight\": {\"dtype\": \"BF16\", \"shape\": [16, 32], "             \
    "\"data_offsets\": [5504, 6528]}, " LAYER                                            \
    "self_attn.o_proj.weight\": {\"dtype\": \"F16\", \"shape\": [32, 32], "              \
    "\"data_offsets\": [6528, 8576]}, " LAYER                                            \
    "self_attn.rotary_emb.inv_freq\": {\"dtype\": \"F64\", \"shape\": [4], "             \
    "\"data_offsets\": [8576, 8608]}, " LAYER                                            \
    "mlp.gate_proj.weight\": {\"dtype\": \"F32\", \"shape\": [16, 32], "                 \
    "\"data_offsets\": [8608, 10656]}, " LAYER                                           \
    "mlp.up_proj.weight\": {\"dtype\": \"F32\", \"shape\": [16, 32], "                   \
    "\"data_offsets\": [10656, 12704]}, " LAYER                                          \
    "mlp.down_proj.weight\": {\"dtype\": \"F32\", \"shape\": [32, 16], "                 \
    "\"data_offsets\": [12704, 14752]}}"
enum { DATA_BYTES = 14752 };

/* `from` becomes `to` in the text, where it stands first. */
struct swap {
    const char *from, *to;
    int err;
    const char *says;
};

static const struct swap config_swaps[] = {
    {"{\"arch", "[{\"arch", -EINVAL, "not valid JSON"},
    {CONFIG, "", -EINVAL, "empty"},
    {CONFIG, "[1, 2]", -EINVAL, "object was expected"},
    {"\"hidden_size\": 32", "\"hidden_size\": 32, \"hidden_size\": 32", -EINVAL,
     "duplicate"},
    {"\"hidden_size\": 32", "\"hidden_size\": 99999999999999999999", -EINVAL, "integer"},
    {"\"hidden_size\": 32, ", "", -EINVAL, "no \"hidden_size\""},
    {"\"hidden_size\": 32", "\"hidden_size\": \"32\"", -EINVAL, "hidden_size"},
    {"\"hidden_size\": 32", "\"hidden_size\": 32.5", -EINVAL, "hidden_size"},
    {"\"hidden_size\": 32", "\"hidden_size\": 40", -EINVAL, "embed_tokens"},
    {"\"hidden_size\": 32", "\"hidden_size\": -32", -EINVAL, "hidden_size"},
    {"\"hidden_size\": 32", "\"hidden_size\": 2000000000", -EINVAL, "hidden size"},
    {"4, \"num_key_value_heads\": 2, \"head_dim\": 8", "5", -EINVAL, "no multiple"},
    {"\"head_dim\": 8", "\"head_dim\": 12", -ENOTSUP, "head dimension of 12"},
    {"\"head_dim\": 8", "\"head_dim\": 512", -ENOTSUP, "head dimension of 512"},
    {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 0", -EINVAL,
     "num_hidden_layers"},
    {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", -EINVAL, "too few"},
    {"\"num_hidden_layers\": 1", "\"num_hidden_layers\": 5000", -EINVAL,
     "layers of 5000"},
    {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", -EINVAL, "share"},
    {"\"vocab_size\": 8", "\"vocab_size\": 9", -EINVAL, "embed_tokens"},
    {"1e-05", "1e300", -EINVAL, "epsilon"},
    {"1e-05", "true", -EINVAL, "rms_norm_eps"},
    {"\"model_type\": \"llama\"", "\"model_type\": \"gpt_neox\"", -ENOTSUP, "gpt_neox"},
    {"\"model_type\": \"llama\"", "\"model_type\": \"a\\nb\"", -ENOTSUP, "a?b"},
    {"\"model_type\": \"llama\", ", "", -EINVAL, "model_type"},
    {"LlamaForCausalLM", "LlamaForSequenceClassification", -ENOTSUP, "LlamaForSequence"},
    {"silu", "gelu", -ENOTSUP, "gelu"},
    {"\"llama3\"", "\"longrope\"", -ENOTSUP, "longrope"},
    {"\"llama3\"", "\"dynamic\"", -ENOTSUP, "dynamic"},
    {"\"llama3\"", "7", -EINVAL, "rope_type"},
    {"\"factor\": 8.0", "\"factor\": 0", -EINVAL, "factor"},
    {"\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0", -EINVAL,
     "high_freq_factor"},
    {"10000.0", "0.5", -EINVAL, "theta"},
    {"10000.0", "1e400", -EINVAL, "not valid JSON"},
    {"\"rope_theta\"", "\"partial_rotary_factor\": 0.5, \"rope_theta\"", -ENOTSUP,
     "partial_rotary_factor"},
    {"\"rope_theta\"",
     "\"quantization_config\": {\"quant_method\": \"gptq\"}, \"rope_theta\"", -ENOTSUP,
     "gptq"},
    {"\"rope_theta\"", "\"num_local_experts\": 8, \"rope_theta\"", -ENOTSUP, "experts"},
    {"\"rope_theta\"", "\"layer_types\": [\"sliding_attention\"], \"rope_theta\"",
     -ENOTSUP, "sliding_attention"},
    {"\"rope_theta\"", "\"attention_bias\": 1, \"rope_theta\"", -EINVAL,
     "attention_bias"},
    {"\"rope_theta\"", "\"attention_bias\": true, \"rope_theta\"", -EINVAL,
     "q_proj.bias"},
    {"false", "\"no\"", -EINVAL, "tie_word_embeddings"},
    {"[1, 2]", "[1, \"2\"]", -EINVAL, "eos_token_id"},
    {"[1, 2]", "{}", -EINVAL, "eos_token_id"},
    {"\"LlamaForCausalLM\"], \"model_type\": \"llama\"",
     "\"MistralForCausalLM\"], \"sliding_window\": 16, \"model_type\": \"mistral\"",
     -ENOTSUP, "sliding_window"},
    {"\"LlamaForCausalLM\"], \"model_type\": \"llama\"",
     "\"Qwen2ForCausalLM\"], \"sliding_window\": 16, \"use_sliding_window\": true, "
     "\"max_window_layers\": 0, \"model_type\": \"qwen2\"",
     -ENOTSUP, "sliding_window"},
    {"\"LlamaForCausalLM\"], \"model_type\": \"llama\"",
     "\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\"", -EINVAL, "q_norm"},
};

static const struct swap header_swaps[] = {
    {"{\"__meta", "[\"__meta", -EINVAL, "not valid JSON"},
    {"\"lm_head.weight\"", "\"model.norm.weight\"", -EINVAL, "duplicate"},
    {"\"lm_head.weight\"", "\"lm_head.w\"", -EINVAL, "no tensor lm_head.weight"},
    {"\"model.norm.weight\"", "\"model\\u0000norm\"", -EINVAL, "not valid JSON"},
    {"\"model.norm.weight\"", "\"" LAYER + 1, -EINVAL, "not valid JSON"},
    {"rotary_emb.inv_freq", "q_proj.bias", -EINVAL, "q_proj.bias, which"},
    {"\"shape\": [32], \"data_offsets\": [2048",
     "\"shape\": [32, 1], \"data_offsets\": [2048", -EINVAL,
     "model.norm.weight has 2 dimensions"},
    {"\"shape\": [8, 32]", "\"shape\": [32, 8]", -EINVAL, "embed_tokens"},
    {"\"shape\": [8, 32]", "\"shape\": [256]", -EINVAL, "embed_tokens"},
    {"\"shape\": [8, 32]", "\"shape\": [8, 33]", -EINVAL, "as many bytes"},
    {"\"shape\": [8, 32]", "\"shape\": [-8, -32]", -EINVAL, "not made of sizes"},
    {"\"shape\": [8, 32]", "\"shape\": [8, 32.0]", -EINVAL, "not made of sizes"},
    {"\"shape\": [8, 32]", "\"shape\": [0, 32]", -EINVAL, "as many bytes"},
    {"\"shape\": [8, 32]", "\"shape\": 256", -EINVAL, "no shape"},
    {"\"shape\": [8, 32]", "\"shape\": [4611686018427387904, 8]", -EINVAL, "too large"},
    {"\"shape\": [8, 32]", "\"shape\": [1, 1, 1, 1, 1, 1, 1, 8, 32]", -EINVAL,
     "dimensions"},
    {"\"dtype\": \"F32\"", "\"dtype\": \"F31\"", -EINVAL, "no known dtype"},
    {"\"dtype\": \"F32\"", "\"dtype\": 32", -EINVAL, "no known dtype"},
    {"\"dtype\": \"F32\"", "\"dtype\": \"I32\"", -ENOTSUP, "I32"},
    {"\"dtype\": \"F16\", \"shape\": [32, 32]",
     "\"dtype\": \"F8_E4M3\", \"shape\": [64, 32]", -ENOTSUP, "F8_E4M3"},
    {"{\"dtype\": \"F32\", \"shape\": [8, 32], \"data_offsets\": [0, 1024]}", "[]",
     -EINVAL, "not described"},
    {"\"data_offsets\": [0, 1024]", "\"data_offsets\": [1024, 0]", -EINVAL, "no range"},
    {"\"data_offsets\": [0, 1024]", "\"data_offsets\": [-1024, 0]", -EINVAL, "no range"},
    {"\"data_offsets\": [0, 1024]", "\"data_offsets\": [0]", -EINVAL, "no data_offsets"},
    {"\"data_offsets\": [0, 1024]", "\"data_offsets\": [\"0\", 1024]", -EINVAL,
     "no data_offsets"},
    {"\"data_offsets\": [0, 1024]", "\"offsets\": [0, 1024]", -EINVAL, "no data_offsets"},
    {"\"data_offsets\": [0, 1024]", "\"data_offsets\": [9000, 9000000]", -EINVAL,
     "beyond the end"},
    {"\"data_offsets\": [0, 1024]", "\"data_offsets\": [1024, 2048]", -EINVAL, "gap"},
    {"\"data_offsets\": [1024, 2048]", "\"data_offsets\": [1020, 2044]", -EINVAL,
     "overlaps"},
    {"\"data_offsets\": [12704, 14752]", "\"data_offsets\": [12708, 14756]", -EINVAL,
     "beyond the end"},
};

/* text with one replacement; freed by the caller. */
static char *swapped(const char *text, const struct swap *s)
{
    const char *at = strstr(text, s->from);
    assert_non_null(at);
    char *out = malloc(strlen(text) + strlen(s->to) + 1);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, s->to, at + strlen(s->from));
    return out;
}

static void write_config(const char *text)
{
    files_write("config.json", text, strlen(text));
}

/* A file with this header, and so many bytes of data, which are small positive
 * numbers. */
static void write_weights(const char *name, const char *header, size_t data_bytes)
{
    struct bytes b = {0};

    bytes_int(&b, strlen(header), 8);
    bytes_put(&b, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i += 4)
        bytes_int(&b, 0x3c003c00, 4);
    files_write(name, b.data, b.n);
    free(b.data);
}

static void restore(void)
{
    write_config(CONFIG);
    write_weights("model.safetensors", HEADER, DATA_BYTES);
    accept(files_dir);
}

static void configs(void **state)
{
    (void)state;
    restore();
    for (size_t i = 0; i < ARRAY_LEN(config_swaps); i++) {
        char *text = swapped(CONFIG, &config_swaps[i]);
        write_config(text);
        refuse(config_swaps[i].to, files_dir, config_swaps[i].err, config_swaps[i].says);
        free(text);
    }
    unlink(files_path("config.json"));
    refuse("no config", files_dir, -ENOENT, "config.json");
}

static void headers(void **state)
{
    (void)state;
    restore();
    for (size_t i = 0; i < ARRAY_LEN(header_swaps); i++) {
        char *text = swapped(HEADER, &header_swaps[i]);
        write_weights("model.safetensors", text, DATA_BYTES);
        refuse(header_swaps[i].to, files_dir, header_swaps[i].err, header_swaps[i].says);
        free(text);
    }
    restore();
}

static void lengths(void **state)
{
    (void)state;
    restore();
    write_weights("model.safetensors", HEADER, DATA_BYTES + 4);
    refuse("trailing bytes", files_dir, -EINVAL, "4 bytes after the last tensor");
    write_weights("model.safetensors", HEADER, DATA_BYTES - 4);
    refuse("truncated", files_dir, -EINVAL, "down_proj.weight reaches beyond the end");
    files_write("model.safetensors", "", 0);
    refuse("empty", files_dir, -EINVAL, "empty");
    files_write("model.safetensors", "\0\0\0\0\0\0\0", 7);
    refuse("seven bytes", files_dir, -EINVAL, "shorter");
    files_write("model.safetensors", "\0\0\0\0\0\0\0", 8);
    refuse("no header", files_dir, -EINVAL, "not valid JSON");
    files_write("model.safetensors", "\377\377\377\377\377\377\377\377{}", 10);
    refuse("huge header", files_dir, -EINVAL, "header of 18446744073709551615 bytes");
    files_write("model.safetensors", "\3\0\0\0\0\0\0\0{}", 10);
    refuse("header beyond the end", files_dir, -EINVAL, "header of 3 bytes");
    files_write("model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    refuse("no tensors", files_dir, -EINVAL, "0 tensors are too few");
    restore();
}

/* Overwrites two bytes of the data section. */
static void spoil_data(size_t at, uint16_t value)
{
    FILE *f = fopen(files_path("model.safetensors"), "r+b");

    fseek(f, (long)(8 + strlen(HEADER) + at), SEEK_SET);
    fwrite(&value, sizeof(value), 1, f);
    fclose(f);
}

static void values(void **state)
{
    (void)state;
    restore();
    spoil_data(2432 + 2 * 32 * 5, 0x7e01);
    refuse("NaN in F16", files_dir, -EDOM, "q_proj.weight, row 5:");
    restore();
    spoil_data(4480 + 2 * 32 * 15, 0xff80);
    refuse("infinity in BF16", files_dir, -EDOM, "k_proj.weight, row 15:");
    restore();
    spoil_data(2048 + 4 * 31 + 2, 0x7fc0);
    refuse("NaN in F32", files_dir, -EDOM, "model.norm.weight, row 31:");
    restore();
    spoil_data(8576 + 6, 0x7ff8); /* in a tensor that no stage reads */
    accept(files_dir);
}

static void generation(void **state)
{
    (void)state;
    restore();
    files_write("generation_config.json", "{\"eos_token_id\": 3}", 19);
    accept(files_dir);
    files_write("generation_config.json", "{\"eos_token_id\": 3.5}", 21);
    refuse("eos", files_dir, -EINVAL, "generation_config.json");
    files_write("generation_config.json", "{\"eos_token_id\": [0,1,2", 23);
    refuse("cut", files_dir, -EINVAL, "generation_config.json");
    unlink(files_path("generation_config.json"));
}

/* An index, in place of the one file, and a second shard that has the name of a tensor
 * again. */
static void indexes(void **state)
{
    static const struct {
        const char *text;
        int err;
        const char *says;
    } indexes[] = {
        {"{}", -EINVAL, "weight_map"},
        {"{\"weight_map\": {}}", -EINVAL, "weight_map"},
        {"{\"weight_map\": {\"a\": 1}}", -EINVAL, "weight_map"},
        {"{\"weight_map\": {\"a\": \"../a.safetensors\"}}", -EINVAL, "../a.safetensors"},
        {"{\"weight_map\": {\"a\": \"/etc/passwd\"}}", -EINVAL, "/etc/passwd"},
        {"{\"weight_map\": {\"a\": \"..\"}}", -EINVAL, "\"..\""},
        {"{\"weight_map\": {\"a\": \"a\\nb\"}}", -EINVAL, "a?b"},
        {"{\"weight_map\": {\"a\": \"missing.safetensors\"}}", -ENOENT,
         "missing.safetensors"},
        {"{\"weight_map\": {\"a\": \"one.safetensors\"}}", -EINVAL,
         "tensor a is not in one"},
        {"{\"weight_map\": {\"lm_head.weight\": \"one.safetensors\","
         "\"extra\": \"two.safetensors\"}}",
         -EINVAL, "two shards have a tensor lm_head.weight"},
        {"{\"weight_map\": {\"lm_head.weight\": \"two.safetensors\"}}", -EINVAL,
         "too few"},
    };
    const char *two =
        "{\"lm_head.weight\": {\"dtype\": \"U8\", \"shape\": [8], \"data_offsets\":"
        "[0, 8]}, \"extra\": {\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\":"
        "[8, 8]}}";
    (void)state;
    restore();
    rename(files_path("model.safetensors"), files_path("one.safetensors"));
    refuse("no weights", files_dir, -ENOENT, "neither model.safetensors nor");
    write_weights("two.safetensors", two, 8);
    const char *name = "model.safetensors.index.json";
    for (size_t i = 0; i < ARRAY_LEN(indexes); i++) {
        files_write(name, indexes[i].text, strlen(indexes[i].text));
        refuse(indexes[i].text, files_dir, indexes[i].err, indexes[i].says);
    }
    const char *good = "{\"weight_map\": {\"lm_head.weight\": \"one.safetensors\"}}";
    files_write(name, good, strlen(good));
    accept(files_dir);
    unlink(files_path(name));
}

static void paths(void **state)
{
    (void)state;
    restore();
    refuse("nothing", files_path("nothing"), -ENOENT, "No such file");
    refuse("weights alone", files_path("model.safetensors"), -EINVAL,
           "folder that holds it");
    refuse("config alone", files_path("config.json"), -EINVAL, "folder that holds it");
    files_write("text", "Not a model.", 12);
    refuse("text", files_path("text"), -EINVAL, "not a GGUF file");
    refuse("file as a folder", files_path("text/model"), -ENOTDIR, "Not a directory");
    assert_int_equal(mkfifo(files_path("fifo"), 0600), 0);
    refuse("FIFO", files_path("fifo"), -EINVAL, "not a regular file");
    refuse("device", "/dev/null", -EINVAL, "not a regular file");
    unlink(files_path("model.safetensors"));
    assert_int_equal(mkdir(files_path("model.safetensors"), 0700), 0);
    refuse("folder as a file", files_dir, -EISDIR, "not a regular file");
    rmdir(files_path("model.safetensors"));
    if (geteuid() == 0) /* who may read everything */
        return;
    restore();
    chmod(files_path("model.safetensors"), 0);
    refuse("unreadable", files_dir, -EACCES, "Permission denied");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs),    cmocka_unit_test(headers),
        cmocka_unit_test(lengths),    cmocka_unit_test(values),
        cmocka_unit_test(generation), cmocka_unit_test(indexes),
        cmocka_unit_test(paths),
    };
    files_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    files_remove();
    return failed;
}
