/* Element types, checked sizes and the log. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base.h"
#include "tests/test.h"

static void test_types(void **state)
{
    (void)state;
    assert_string_equal(dtype_name(DTYPE_F32), "F32");
    assert_string_equal(dtype_name(DTYPE_Q4_K), "Q4_K");
    assert_string_equal(dtype_name(DTYPE_COUNT), "?");
    assert_int_equal(dtype_block_elements(DTYPE_BF16), 1);
    assert_int_equal(dtype_block_bytes(DTYPE_BF16), 2);
    assert_int_equal(dtype_block_elements(DTYPE_Q6_K), 256);
    assert_int_equal(dtype_block_bytes(DTYPE_Q6_K), 210);
    assert_int_equal(dtype_block_bytes((enum dtype) - 1), 0);
}

static void test_bytes(void **state)
{
    size_t bytes = 7;

    (void)state;
    assert_int_equal(dtype_bytes(&bytes, DTYPE_F32, 3), 0);
    assert_int_equal(bytes, 12);
    assert_int_equal(dtype_bytes(&bytes, DTYPE_Q8_0, 64), 0);
    assert_int_equal(bytes, 68);
    assert_int_equal(dtype_bytes(&bytes, DTYPE_Q8_0, 0), 0);
    assert_int_equal(bytes, 0);
    assert_int_equal(dtype_bytes(&bytes, DTYPE_Q8_0, 33), -EINVAL);
    assert_int_equal(dtype_bytes(&bytes, DTYPE_COUNT, 1), -EINVAL);
    assert_int_equal(dtype_bytes(&bytes, DTYPE_F32, SIZE_MAX / 4 + 1), -EOVERFLOW);
    assert_int_equal(dtype_bytes(&bytes, DTYPE_Q4_K, SIZE_MAX / 256 * 256), 0);
}

static void test_sizes(void **state)
{
    size_t out;

    (void)state;
    assert_int_equal(size_mul(&out, 1u << 20, 1u << 20), 0);
    assert_true(out == (size_t)1 << 40);
    assert_int_equal(size_mul(&out, SIZE_MAX, 0), 0);
    assert_int_equal(out, 0);
    assert_int_equal(size_mul(&out, SIZE_MAX / 2 + 1, 2), -EOVERFLOW);
    assert_int_equal(size_add(&out, SIZE_MAX - 1, 1), 0);
    assert_true(out == SIZE_MAX);
    assert_int_equal(size_add(&out, SIZE_MAX, 1), -EOVERFLOW);
}

/* What log lines write to stderr; the caller gives room for it. */
static void capture(char *text, size_t size, void (*say)(void))
{
    int ends[2], saved = dup(STDERR_FILENO);
    ssize_t n;

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    say();
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    n = read(ends[0], text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    close(ends[1]);
    close(saved);
}

static void say_levels(void)
{
    log_set_level(LOG_WARN);
    log_error("file %s, byte %d", "x", 7);
    log_warn("odd");
    log_info("not seen");
    log_set_level(LOG_INFO);
}

static void say_long(void)
{
    log_error("%05000d", 1);
}

static void test_log(void **state)
{
    char text[8192];
    size_t n;

    (void)state;
    capture(text, sizeof(text), say_levels);
    assert_string_equal(text,
                        "penstock: error: file x, byte 7\npenstock: warning: odd\n");
    capture(text, sizeof(text), say_long);
    n = strlen(text);
    assert_true(n > 1000 && n < 5000);
    assert_string_equal(text + n - 4, "...\n");
}

static void test_clock(void **state)
{
    double start = time_now();

    (void)state;
    usleep(2000);
    assert_true(time_now() - start >= 0.002);
    assert_true(time_now() - start < 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types), cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_log),
        cmocka_unit_test(test_clock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
