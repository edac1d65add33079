/* GGUF files and their element types, against what gguf-py wrote and dequantised
 * (tests/golden/stages-models.py). */
#include <math.h>

#include "stages/gguf.h"
#include "stages/model.h"
#include "tests/stages-files.h"

/* Every tensor NAME of quants.gguf has its values beside it as F32. Equal to the last
 * bit. */
static void quants(void **state)
{
    static const char *const names[] = {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0",
                                        "Q4_K", "Q5_K", "Q6_K", "F16",  "BF16"};
    struct gguf *g;
    char name[32];

    (void)state;
    assert_int_equal(gguf_open(&g, TEST_DATA("data/quants.gguf")), 0);
    assert_int_equal(g->version, 3);
    assert_int_equal(g->n_tensors, 2 * ARRAY_LEN(names));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct gguf_tensor *t = gguf_find_tensor(g, names[i]);
        snprintf(name, sizeof(name), "%s.values", names[i]);
        const struct gguf_tensor *v = gguf_find_tensor(g, name);
        assert_non_null(t);
        assert_non_null(v);
        assert_string_equal(dtype_name(t->dtype), names[i]);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->dims[0], v->dims[0]);
        assert_int_equal(t->dims[1], v->dims[1]);
        size_t n = v->dims[0] * v->dims[1];
        assert_int_equal(v->bytes, n * sizeof(float));
        float *out = malloc(n * sizeof(float));
        void *exact =
            malloc(t->bytes); /* so that a sanitizer sees a read behind its end */
        memcpy(exact, t->data, t->bytes);
        dequantize(out, t->dtype, exact, n);
        assert_memory_equal(out, v->data, n * sizeof(float));
        free(exact);
        free(out);
    }
    gguf_close(g);
}

/* Value of a half by the definition of the format, in double. */
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 1023;
    double sign = h >> 15 ? -1 : 1;

    if (exponent == 31)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, exponent - 25);
}

static void every_half(void **state)
{
    static uint16_t in[65536];
    static float out[65536];

    (void)state;
    for (int i = 0; i < 65536; i++)
        in[i] = (uint16_t)i;
    dequantize(out, DTYPE_F16, in, 65536);
    for (int i = 0; i < 65536; i++) {
        double want = half_value((uint16_t)i);
        if (isnan(want))
            assert_true(isnan(out[i]));
        else
            assert_true((double)out[i] == want &&
                        signbit(out[i]) == signbit((float)want));
    }
}

/* One key of every type. */
static struct bytes all_types(uint32_t version)
{
    struct bytes b = {0};

    bytes_put(&b, "GGUF", 4);
    bytes_int(&b, version, 4);
    bytes_int(&b, 0, 8);
    bytes_int(&b, 14, 8);
    gguf_put_int(&b, "u8", 0, 200, 1);
    gguf_put_int(&b, "i8", 1, (uint8_t)-100, 1);
    gguf_put_int(&b, "u16", 2, 60000, 2);
    gguf_put_int(&b, "i16", 3, (uint16_t)-30000, 2);
    gguf_put_int(&b, "u32", 4, 4000000000, 4);
    gguf_put_int(&b, "i32", 5, (uint32_t)-2000000000, 4);
    gguf_put_float(&b, "f32", 1.5f);
    gguf_put_int(&b, "bool", 7, 1, 1);
    gguf_put_key(&b, "string", 8);
    gguf_put_string(&b, "turbine");
    gguf_put_key(&b, "strings", 9);
    bytes_int(&b, 8, 4);
    bytes_int(&b, 3, 8);
    gguf_put_string(&b, "");
    gguf_put_string(&b, "a");
    gguf_put_string(&b, "bc");
    gguf_put_int(&b, "u64", 10, UINT64_MAX, 8);
    gguf_put_int(&b, "i64", 11, (uint64_t)INT64_MIN, 8);
    gguf_put_key(&b, "f64", 12);
    bytes_put(&b, &(double){-0.1}, 8);
    gguf_put_key(&b, "ints", 9);
    bytes_int(&b, 3, 4);
    bytes_int(&b, 2, 8);
    bytes_int(&b, (uint16_t)-1, 2);
    bytes_int(&b, 7, 2);
    return b;
}

static void check_int(const struct gguf *g, const char *key, int64_t want)
{
    int64_t value = 0;
    assert_int_equal(gguf_int(&value, gguf_find(g, key), 0), 0);
    assert_true(value == want);
}

static void types(void **state)
{
    struct bytes b = all_types(2);
    struct gguf *g;
    struct gguf_str s, *list;
    double d;
    bool flag;
    int64_t n;

    (void)state;
    assert_int_equal(gguf_parse(&g, b.data, b.n, "types"), 0);
    assert_int_equal(g->n_kv, 14);
    check_int(g, "u8", 200);
    check_int(g, "i8", -100);
    check_int(g, "u16", 60000);
    check_int(g, "i16", -30000);
    check_int(g, "u32", 4000000000);
    check_int(g, "i32", -2000000000);
    check_int(g, "i64", INT64_MIN);
    check_int(g, "ints", -1);
    assert_int_equal(gguf_int(&n, gguf_find(g, "ints"), 1), 0);
    assert_int_equal(n, 7);
    assert_int_equal(gguf_int(&n, gguf_find(g, "ints"), 2), -EINVAL);
    assert_int_equal(gguf_int(&n, gguf_find(g, "u64"), 0), -EINVAL);
    assert_int_equal(gguf_int(&n, gguf_find(g, "f32"), 0), -EINVAL);
    assert_int_equal(gguf_float(&d, gguf_find(g, "f32"), 0), 0);
    assert_true(d == 1.5);
    assert_int_equal(gguf_float(&d, gguf_find(g, "f64"), 0), 0);
    assert_true(d == -0.1);
    assert_int_equal(gguf_float(&d, gguf_find(g, "string"), 0), -EINVAL);
    assert_int_equal(gguf_bool(&flag, gguf_find(g, "bool")), 0);
    assert_true(flag);
    assert_int_equal(gguf_bool(&flag, gguf_find(g, "u8")), -EINVAL);
    assert_int_equal(gguf_string(&s, gguf_find(g, "string")), 0);
    assert_int_equal(s.len, 7);
    assert_memory_equal(s.data, "turbine", 7);
    assert_int_equal(gguf_string(&s, gguf_find(g, "strings")), -EINVAL);
    assert_int_equal(gguf_strings(&list, gguf_find(g, "strings")), 0);
    assert_int_equal(list[0].len, 0);
    assert_memory_equal(list[1].data, "a", 1);
    assert_int_equal(list[2].len, 2);
    assert_memory_equal(list[2].data, "bc", 2);
    free(list);
    assert_int_equal(gguf_strings(&list, gguf_find(g, "ints")), -EINVAL);
    assert_null(gguf_find(g, "u"));
    gguf_close(g);
    free(b.data);
}

/* However short a file is cut, it is refused, with one line. */
static void every_length(void **state)
{
    struct bytes b = all_types(3);

    (void)state;
    for (size_t n = 0; n < b.n; n++) {
        struct gguf *g;
        void *copy =
            malloc(n ? n : 1); /* so that a sanitizer sees a read behind its end */
        memcpy(copy, b.data, n);
        struct capture c = capture_begin();
        int err = gguf_parse(&g, copy, n, "cut");
        char *text = capture_end(c);
        assert_int_equal(err, -EINVAL);
        assert_null(g);
        assert_true(capture_is_one_line(text));
        free(text);
        free(copy);
    }
    free(b.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quants),
        cmocka_unit_test(every_half),
        cmocka_unit_test(types),
        cmocka_unit_test(every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
