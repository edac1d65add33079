/* Malformed, impossible and unsupported GGUF files: each is refused with the right error
 * and exactly one line that names the fault. A small valid file is built here and spoilt
 * in one place at a time. */
#include "stages/gguf.h"
#include "tests/stages-refuse.h"

/* Sizes of the model: one layer. */
enum { V = 8, C = 32, H = 4, K = 2, D = 8, F = 32 };

struct tensor {
    const char *name;
    int n_dims;
    uint64_t dims[2]; /* the fastest first */
};

static const struct tensor tensors[] = {
    {"token_embd.weight", 2, {C, V}},
    {"output_norm.weight", 1, {C}},
    {"output.weight", 2, {C, V}},
    {"rope_freqs.weight", 1, {D / 2}},
    {"blk.0.attn_norm.weight", 1, {C}},
    {"blk.0.attn_q.weight", 2, {C, H *D}},
    {"blk.0.attn_k.weight", 2, {C, K *D}},
    {"blk.0.attn_v.weight", 2, {C, K *D}},
    {"blk.0.attn_output.weight", 2, {H * D, C}},
    {"blk.0.ffn_norm.weight", 1, {C}},
    {"blk.0.ffn_gate.weight", 2, {C, F}},
    {"blk.0.ffn_up.weight", 2, {C, F}},
    {"blk.0.ffn_down.weight", 2, {F, C}},
};

enum { KEYS = 21 };

static void put_keys(struct bytes *b)
{
    gguf_put_key(b, "general.architecture", 8);
    gguf_put_string(b, "llama");
    gguf_put_int(b, "general.alignment", 4, 32, 4);
    gguf_put_int(b, "llama.block_count", 4, 1, 4);
    gguf_put_int(b, "llama.context_length", 4, 64, 4);
    gguf_put_int(b, "llama.embedding_length", 4, C, 4);
    gguf_put_int(b, "llama.feed_forward_length", 4, F, 4);
    gguf_put_int(b, "llama.attention.head_count", 4, H, 4);
    gguf_put_key(b, "llama.attention.head_count_kv", 9);
    bytes_int(b, 4, 4);
    bytes_int(b, 2, 8);
    bytes_int(b, K, 4);
    bytes_int(b, K, 4);
    gguf_put_int(b, "llama.attention.key_length", 4, D, 4);
    gguf_put_int(b, "llama.rope.dimension_count", 4, D, 4);
    gguf_put_float(b, "llama.rope.freq_base", 1e4f);
    gguf_put_float(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_put_float(b, "llama.rope.scaling.factor", 2);
    gguf_put_key(b, "llama.rope.scaling.type", 8);
    gguf_put_string(b, "linear");
    gguf_put_int(b, "llama.attention.sliding_window", 4, 64, 4);
    gguf_put_int(b, "llama.expert_count", 4, 0, 4);
    gguf_put_int(b, "split.count", 2, 1, 2);
    gguf_put_key(b, "general.type", 8);
    gguf_put_string(b, "model");
    gguf_put_int(b, "tokenizer.ggml.bos_token_id", 4, 1, 4);
    gguf_put_int(b, "tokenizer.ggml.eos_token_id", 4, 2, 4);
    gguf_put_key(b, "tokenizer.ggml.tokens", 9);
    bytes_int(b, 8, 4);
    bytes_int(b, 3, 8);
    for (int i = 0; i < 3; i++)
        gguf_put_string(b, "t");
}

/* A valid file: F32 tensors of ones, each aligned to 32 bytes. */
static struct bytes build(void)
{
    struct bytes b = {0};
    uint64_t offset = 0;
    const float one = 1;

    bytes_put(&b, "GGUF", 4);
    bytes_int(&b, 3, 4);
    bytes_int(&b, ARRAY_LEN(tensors), 8);
    bytes_int(&b, KEYS, 8);
    put_keys(&b);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        const struct tensor *t = &tensors[i];
        gguf_put_tensor(&b, t->name, 0, offset, t->n_dims, t->dims);
        offset += (t->dims[0] * (t->n_dims > 1 ? t->dims[1] : 1) * 4 + 31) / 32 * 32;
    }
    bytes_zero(&b, (32 - b.n % 32) % 32);
    for (uint64_t i = 0; i < offset / 4; i++)
        bytes_put(&b, &one, 4);
    return b;
}

/* Overwrites n bytes, `at` bytes behind the end of the first `after`. Before a key or a
 * name lies its length, at -8 - strlen. Behind a key: its type, at 4 its value (a
 * string's text from 12, an array's items from 16). Behind a tensor's name: the number of
 * dimensions, the dimensions from 4, then type and offset. */
struct patch {
    const char *what, *after;
    int at;
    const char *bytes;
    size_t n;
    int err;
    const char *says;
};

#define BYTES(text) (text), sizeof(text) - 1
#define ONES        "\377\377\377\377\377\377\377\377"

static const struct patch patches[] = {
    {"magic", "GGUF", -4, BYTES("GGML"), -EINVAL, "not a GGUF file"},
    {"version 1", "GGUF", 0, BYTES("\1"), -ENOTSUP, "version 1"},
    {"version 4", "GGUF", 0, BYTES("\4"), -ENOTSUP, "version 4"},
    {"big-endian", "GGUF", 0, BYTES("\0\0\0\3"), -ENOTSUP, "big-endian"},
    {"huge tensor count", "GGUF", 4, BYTES(ONES), -EINVAL, "more tensors than fit"},
    {"huge key count", "GGUF", 12, BYTES(ONES), -EINVAL, "more keys than fit"},
    {"one key too many", "GGUF", 12, BYTES("\26"), -EINVAL, "malformed"},
    {"one tensor too many", "GGUF", 4, BYTES("\16"), -EINVAL, "malformed"},
    {"key without end", "general.alignment", -25, BYTES("\0\0\0\1"), -EINVAL, "beyond"},
    {"string without end", "llama", -13, BYTES(ONES), -EINVAL, "beyond"},
    {"array without end", "head_count_kv", 8, BYTES("\0\0\0\0\0\0\0\100"), -EINVAL,
     "beyond"},
    {"strings without end", "ggml.tokens", 8, BYTES(ONES), -EINVAL, "beyond"},
    {"unknown value type", "llama.block_count", 0, BYTES("\15"), -EINVAL, "unknown type"},
    {"array of arrays", "head_count_kv", 4, BYTES("\11"), -EINVAL, "unknown type"},
    {"duplicate key", "llama.block_count", -17, BYTES("general.alignment"), -EINVAL,
     "general.alignment occurs twice"},
    {"alignment 0", "general.alignment", 4, BYTES("\0"), -EINVAL, "alignment"},
    {"alignment 48", "general.alignment", 4, BYTES("\60"), -EINVAL, "alignment"},
    {"alignment no integer", "general.alignment", 0, BYTES("\6"), -EINVAL, "alignment"},
    {"other architecture", "general.architecture", 12, BYTES("gemma"), -ENOTSUP, "gemma"},
    {"unprintable text", "general.architecture", 12, BYTES("a\nb\0c"), -ENOTSUP, "a?b?c"},
    {"no architecture", "general.architecture", -1, BYTES("E"), -EINVAL, "architecture"},
    {"no layers", "llama.block_count", 4, BYTES("\0"), -EINVAL, "block_count is 0"},
    {"more layers than tensors", "llama.block_count", 4, BYTES("\2"), -EINVAL, "too few"},
    {"too many layers", "llama.block_count", 4, BYTES("\377\377\377\177"), -EINVAL,
     "layers"},
    {"layers no integer", "llama.block_count", 0, BYTES("\6"), -EINVAL, "not an integer"},
    {"negative layers", "llama.block_count", 0, BYTES("\5\0\0\0\377\377\377\377"),
     -EINVAL, "block_count is -1"},
    {"key missing", "llama.embedding_length", -1, BYTES("L"), -EINVAL,
     "embedding_length"},
    {"hidden size differs", "llama.embedding_length", 4, BYTES("\100"), -EINVAL,
     "token_embd.weight"},
    {"no heads", "llama.attention.head_count", 4, BYTES("\0"), -EINVAL,
     "head_count is 0"},
    {"heads do not divide", "llama.attention.head_count", 4, BYTES("\5"), -EINVAL,
     "share"},
    {"heads by layer", "head_count_kv", 20, BYTES("\4"), -ENOTSUP, "layer to layer"},
    {"kv heads do not divide", "head_count_kv", 16, BYTES("\3\0\0\0\3"), -EINVAL,
     "share"},
    {"head dimension differs", "key_length", 4, BYTES("\20"), -ENOTSUP, "rotation of 8"},
    {"part of a head rotated", "dimension_count", 4, BYTES("\4"), -ENOTSUP,
     "rotation of 4"},
    {"theta 0", "rope.freq_base", 4, BYTES("\0\0\0\0"), -EINVAL, "theta"},
    {"theta NaN", "rope.freq_base", 4, BYTES("\377\377\377\377"), -EINVAL, "freq_base"},
    {"epsilon 100", "rms_epsilon", 4, BYTES("\0\0\310\102"), -EINVAL, "epsilon"},
    {"negative factor", "rope.scaling.factor", 4, BYTES("\0\0\200\300"), -EINVAL,
     "factor"},
    {"unknown RoPE", "rope.scaling.type", 12, BYTES("linean"), -ENOTSUP, "linean"},
    {"sliding window", "sliding_window", 4, BYTES("\20"), -ENOTSUP, "window of 16"},
    {"experts", "llama.expert_count", 4, BYTES("\10"), -ENOTSUP, "expert_count"},
    {"split file", "split.count", 4, BYTES("\3"), -ENOTSUP, "3 parts"},
    {"adapter", "general.type", 12, BYTES("lorax"), -ENOTSUP, "lorax"},
    {"eos no integer", "eos_token_id", 0, BYTES("\6"), -EINVAL, "eos_token_id"},
    {"five dimensions", "token_embd.weight", 0, BYTES("\5"), -EINVAL, "dimensions"},
    {"no dimension", "token_embd.weight", 0, BYTES("\0"), -EINVAL, "dimensions"},
    {"empty dimension", "token_embd.weight", 4, BYTES("\0"), -EINVAL, "empty dimension"},
    {"overflowing shape", "token_embd.weight", 4,
     BYTES("\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0"), -EINVAL, "too large"},
    {"shape larger than the file", "token_embd.weight", 12, BYTES("\0\0\1"), -EINVAL,
     "beyond"},
    {"embedding too small", "token_embd.weight", 12, BYTES("\2"), -EINVAL, "3 tokens"},
    {"wrong shape", "blk.0.ffn_up.weight", 4, BYTES("\20"), -EINVAL, "ffn_up"},
    {"wrong RoPE divisors", "rope_freqs.weight", 4, BYTES("\2"), -EINVAL, "rope_freqs"},
    {"unsupported type", "blk.0.attn_q.weight", 20, BYTES("\12"), -ENOTSUP, "Q2_K"},
    {"unknown type", "blk.0.attn_q.weight", 20, BYTES("\377\377"), -ENOTSUP, "65535"},
    {"half a block", "blk.0.attn_q.weight", 20, BYTES("\14"), -EINVAL, "block"},
    {"quantised vector", "blk.0.attn_norm.weight", 12, BYTES("\10"), -ENOTSUP, "Q8_0"},
    {"offset not aligned", "blk.0.attn_q.weight", 24, BYTES("\1"), -EINVAL, "aligned"},
    {"offset beyond the end", "blk.0.attn_q.weight", 24, BYTES("\0\0\0\0\0\0\0\377"),
     -EINVAL, "beyond the end"},
    {"overlap", "output_norm.weight", 16, BYTES("\40\0\0\0"), -EINVAL, "overlaps"},
    {"duplicate tensor", "blk.0.attn_v.weight", -19, BYTES("blk.0.attn_k.weight"),
     -EINVAL, "occurs twice"},
    {"missing tensor", "blk.0.attn_v.weight", -8, BYTES("x"), -EINVAL, "attn_v.weight"},
    {"bias not asked for", "rope_freqs.weight", -17, BYTES("blk.0.attn_k.bias"), -EINVAL,
     "attn_k.bias"},
};

static size_t find(const struct bytes *b, const char *text)
{
    const uint8_t *at = memmem(b->data, b->n, text, strlen(text));
    assert_non_null(at);
    return (size_t)(at - b->data);
}

static const char *write_model(const struct bytes *b, size_t n)
{
    files_write("model.gguf", b->data, n);
    return files_path("model.gguf");
}

static void spoilt(void **state)
{
    struct bytes b = build();

    (void)state;
    accept(write_model(&b, b.n));
    for (size_t i = 0; i < ARRAY_LEN(patches); i++) {
        const struct patch *p = &patches[i];
        uint8_t *at = b.data + (ptrdiff_t)(find(&b, p->after) + strlen(p->after)) + p->at;
        uint8_t saved[64];
        memcpy(saved, at, p->n);
        memcpy(at, p->bytes, p->n);
        refuse(p->what, write_model(&b, b.n), p->err, p->says);
        memcpy(at, saved, p->n);
    }
    accept(write_model(&b, b.n));
    free(b.data);
}

static void cut_short(void **state)
{
    static const size_t lengths[] = {1, 3, 4, 20, 100, 1000};
    struct bytes b = build();

    (void)state;
    refuse("empty", write_model(&b, 0), -EINVAL, "empty");
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        refuse("cut", write_model(&b, lengths[i]), -EINVAL, "GGUF file");
    refuse("cut by one byte", write_model(&b, b.n - 1), -EINVAL, "ffn_down.weight");
    free(b.data);
}

/* Puts a value into a tensor's data. */
static void spoil_value(struct bytes *b, const char *tensor, size_t element, float value)
{
    struct gguf *g;

    assert_int_equal(gguf_parse(&g, b->data, b->n, "built"), 0);
    size_t at =
        (size_t)(gguf_find_tensor(g, tensor)->data - b->data) + element * sizeof(value);
    gguf_close(g);
    memcpy(b->data + at, &value, sizeof(value));
}

static void values(void **state)
{
    struct bytes b = build();

    (void)state;
    spoil_value(&b, "rope_freqs.weight", 2, 0);
    refuse("divisor 0", write_model(&b, b.n), -EDOM, "rope_freqs.weight: element 2");
    spoil_value(&b, "rope_freqs.weight", 2, 1);
    spoil_value(&b, "blk.0.attn_q.weight", 3 * C + 7, NAN);
    refuse("NaN", write_model(&b, b.n), -EDOM, "blk.0.attn_q.weight, row 3:");
    spoil_value(&b, "blk.0.attn_q.weight", 3 * C + 7, 1);
    spoil_value(&b, "blk.0.ffn_down.weight", 31 * F + 31, -INFINITY);
    refuse("infinity", write_model(&b, b.n), -EDOM, "blk.0.ffn_down.weight, row 31:");
    spoil_value(&b, "blk.0.ffn_down.weight", 31 * F + 31, 1);
    spoil_value(&b, "output_norm.weight", 0, INFINITY);
    refuse("norm infinite", write_model(&b, b.n), -EDOM, "output_norm.weight, row 0:");
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spoilt),
        cmocka_unit_test(cut_short),
        cmocka_unit_test(values),
    };
    files_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    files_remove();
    return failed;
}
