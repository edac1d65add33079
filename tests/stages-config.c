/* config.json of well-known models, and what is made of variations of them. */
#include "stages/hf.h"
#include "tests/stages-files.h"

#define LLAMA_32_1B                                                                      \
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false,"             \
    "\"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008, 128009],"              \
    "\"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 2048,"                 \
    "\"intermediate_size\": 8192, \"max_position_embeddings\": 131072,"                  \
    "\"mlp_bias\": false, \"model_type\": \"llama\", \"num_attention_heads\": 32,"       \
    "\"num_hidden_layers\": 16, \"num_key_value_heads\": 8, \"pretraining_tp\": 1,"      \
    "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 32.0,"                      \
    "\"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0,"                               \
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"},"            \
    "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true, \"vocab_size\": 128256}"

#define QWEN25_05B                                                                       \
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"attention_dropout\": 0.0,"            \
    "\"bos_token_id\": 151643, \"eos_token_id\": 151645, \"hidden_act\": \"silu\","      \
    "\"hidden_size\": 896, \"intermediate_size\": 4864,"                                 \
    "\"max_position_embeddings\": 32768, \"max_window_layers\": 21,"                     \
    "\"model_type\": \"qwen2\", \"num_attention_heads\": 14,"                            \
    "\"num_hidden_layers\": 24, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06,"    \
    "\"rope_theta\": 1000000.0, \"sliding_window\": 32768,"                              \
    "\"tie_word_embeddings\": true, \"use_sliding_window\": false,"                      \
    "\"vocab_size\": 151936}"

#define MISTRAL_03                                                                       \
    "{\"architectures\": [\"MistralForCausalLM\"], \"bos_token_id\": 1,"                 \
    "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 4096,"              \
    "\"intermediate_size\": 14336, \"max_position_embeddings\": 32768,"                  \
    "\"model_type\": \"mistral\", \"num_attention_heads\": 32,"                          \
    "\"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05,"    \
    "\"rope_theta\": 1000000.0, \"sliding_window\": null,"                               \
    "\"tie_word_embeddings\": false, \"vocab_size\": 32768}"

#define MINIMAL                                                                          \
    "{\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 64,"              \
    "\"intermediate_size\": 128, \"num_hidden_layers\": 3, \"num_attention_heads\": 4}"

static struct model_config parse(const char *json)
{
    struct model_config c;
    assert_int_equal(hf_config_parse(&c, json, strlen(json), "config.json"), 0);
    return c;
}

static void llama3(void **state)
{
    struct model_config c = parse(LLAMA_32_1B);

    (void)state;
    assert_true(c.V == 128256 && c.C == 2048 && c.L == 16 && c.H == 32 && c.K == 8);
    assert_true(c.D == 64 && c.F == 8192 && c.max_positions == 131072 && c.tied);
    assert_true(c.rope.kind == ROPE_LLAMA3 && c.rope.theta == 5e5 && c.rope.factor == 32);
    assert_true(c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
    assert_true(c.rope.original_positions == 8192);
    assert_true(c.n_eos == 3 && c.eos[0] == 128001 && c.eos[2] == 128009);
    assert_int_equal(c.bos, 128000);
}

static void qwen2(void **state)
{
    struct model_config c = parse(QWEN25_05B);

    (void)state;
    assert_string_equal(c.arch, "qwen2");
    assert_true(c.D == 64 && c.K == 2 && c.attn_bias && !c.o_bias && !c.qk_norm &&
                c.tied);
    assert_true(c.rope.kind == ROPE_DEFAULT && c.rope.theta == 1e6);
    assert_true(c.n_eos == 1 && c.eos[0] == 151645);
}

static void mistral(void **state)
{
    struct model_config c = parse(MISTRAL_03);

    (void)state;
    assert_string_equal(c.arch, "mistral");
    assert_true(c.D == 128 && !c.tied && !c.attn_bias);
}

/* What transformers' classes take where keys are absent. */
static void defaults(void **state)
{
    struct model_config c = parse(MINIMAL);

    (void)state;
    assert_true(c.K == 4 && c.D == 16 && c.max_positions == 2048 && !c.tied);
    assert_true(c.norm_eps == 1e-6f && c.rope.theta == 1e4 &&
                c.rope.kind == ROPE_DEFAULT);
    assert_true(c.bos == 1 && c.n_eos == 1 && c.eos[0] == 2);
    assert_true(!c.attn_bias && !c.o_bias && !c.mlp_bias);
}

/* MINIMAL with its closing brace replaced by more members. */
static struct model_config with(const char *more)
{
    char json[2048];
    snprintf(json, sizeof(json), "%.*s, %s}", (int)strlen(MINIMAL) - 1, MINIMAL, more);
    return parse(json);
}

static void options(void **state)
{
    struct model_config c = with("\"attention_bias\": true, \"mlp_bias\": true");

    (void)state;
    assert_true(c.attn_bias && c.o_bias && c.mlp_bias);
    c = with("\"num_key_value_heads\": 2, \"head_dim\": 24, \"hidden_act\": \"swish\"");
    assert_true(c.K == 2 && c.D == 24);
    c = with("\"eos_token_id\": [7, 7, 100, 8], \"bos_token_id\": null");
    assert_true(c.n_eos == 2 && c.eos[0] == 7 && c.eos[1] == 8 && c.bos == -1);
    c = with("\"eos_token_id\": null");
    assert_int_equal(c.n_eos, 0);
    c = with(
        "\"rope_scaling\": null, \"rope_theta\": 20000, \"partial_rotary_factor\": 1.0");
    assert_true(c.rope.kind == ROPE_DEFAULT && c.rope.theta == 20000);
    c = with("\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}");
    assert_true(c.rope.kind == ROPE_LINEAR && c.rope.factor == 4);
    c = with("\"rope_parameters\": {\"type\": \"default\", \"rope_type\": \"yarn\","
             "\"factor\": 4, \"rope_theta\": 7e5, \"truncate\": false},"
             "\"original_max_position_embeddings\": 512");
    assert_true(c.rope.kind == ROPE_YARN && c.rope.theta == 7e5 && !c.rope.truncate);
    assert_true(c.rope.original_positions == 512 && c.rope.beta_fast == 32);
    c = with("\"quantization_config\": null, \"num_experts\": 0, \"logit_scale\": 1.0,"
             "\"layer_types\": [\"full_attention\", \"full_attention\"]");
    assert_int_equal(c.L, 3);
}

static void generation(void **state)
{
    const char *json = "{\"eos_token_id\": [2, 9, 11], \"do_sample\": true}";
    struct model_config c = parse(MINIMAL);

    (void)state;
    assert_int_equal(hf_generation_parse(&c, json, strlen(json), "generation"), 0);
    assert_true(c.n_eos == 3 && c.eos[0] == 2 && c.eos[1] == 9 && c.eos[2] == 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama3),  cmocka_unit_test(qwen2),
        cmocka_unit_test(mistral), cmocka_unit_test(defaults),
        cmocka_unit_test(options), cmocka_unit_test(generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
