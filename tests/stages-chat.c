/* Chat prompts against what transformers renders with templates of the same forms
 * (tests/data/chat.json, made by tests/golden/stages-chat.py). */
#include <time.h>

#include "tests/stages-tokenizers.h"

static const char *const forms[] = {
    [CHAT_NONE] = "none",     [CHAT_CHATML] = "chatml",
    [CHAT_LLAMA3] = "llama3", [CHAT_DEEPSEEK_R1] = "deepseek-r1",
    [CHAT_ZEPHYR] = "zephyr", [CHAT_MISTRAL] = "mistral",
};

static struct model folder = {.path = files_dir, .dir = files_dir};

static int setup(void **state)
{
    (void)state;
    files_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    files_remove();
    return 0;
}

/* Writes tokenizer_config.json with a template in it. */
static void write_config(json_t *template)
{
    json_t *root = json_pack("{s:s, s:{s:s}, s:o}", "bos_token", "<s>", "eos_token",
                             "content", "</s>", "chat_template", template);
    char *text = json_dumps(root, 0);
    files_write("tokenizer_config.json", text, strlen(text));
    free(text);
    json_decref(root);
}

static size_t read_messages(struct chat_message *out, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i);
        out[i].role = json_string_value(json_array_get(m, 0));
        out[i].text = json_string_value(json_array_get(m, 1));
    }
    return json_array_size(list);
}

static void check_form(const struct model *m, const json_t *item)
{
    const json_t *cases = json_object_get(item, "cases");
    const char *name = json_string_value(json_object_get(item, "name"));
    struct chat_message messages[8];
    enum chat_form form;
    char *text;

    assert_int_equal(chat_detect(&form, m), 0);
    assert_string_equal(forms[form], json_string_value(json_object_get(item, "form")));
    assert_true(json_array_size(cases) >= 4);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        size_t n = read_messages(messages, json_array_get(c, 0));
        assert_int_equal(chat_render(&text, form, m, messages, n), 0);
        if (strcmp(text, json_string_value(json_array_get(c, 1))))
            fail_msg("%s, case %zu:\n%s\n-- expected:\n%s", name, i, text,
                     json_string_value(json_array_get(c, 1)));
        free(text);
    }
}

static void known_forms(void **state)
{
    json_t *root = read_json(TEST_DATA("data/chat.json"));
    const json_t *list = json_object_get(root, "forms");

    (void)state;
    assert_int_equal(json_array_size(list), 15);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        write_config(json_incref(json_object_get(item, "template")));
        check_form(&folder, item);
    }
    json_decref(root);
}

/* A list of named templates, and a file that goes before the configuration. */
static void other_places(void **state)
{
    json_t *root = read_json(TEST_DATA("data/chat.json"));
    const json_t *list = json_object_get(root, "forms");
    const json_t *zephyr = json_array_get(list, 10), *r1 = json_array_get(list, 8);
    const char *source = json_string_value(json_object_get(zephyr, "template"));

    (void)state;
    write_config(json_pack("[{s:s, s:s}, {s:s, s:O}]", "name", "tool_use", "template",
                           "x", "name", "default", "template",
                           json_object_get(r1, "template")));
    check_form(&folder, r1);
    files_write("chat_template.jinja", source, strlen(source));
    check_form(&folder, zephyr);
    remove(files_path("chat_template.jinja"));
    json_decref(root);
}

static void gguf_template(void **state)
{
    json_t *root = read_json(TEST_DATA("data/chat.json"));
    json_t *tokens = read_json(TEST_DATA("data/tokenizers/llama.json"));
    const json_t *list = json_object_get(root, "forms");
    struct model m = {.path = (char *)"test"};

    (void)state;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct bytes b = gguf_of_json(tokens, "default", 3);
        gguf_put_int(&b, "tokenizer.ggml.bos_token_id", 4, 1, 4);
        gguf_put_int(&b, "tokenizer.ggml.eos_token_id", 4, 2, 4);
        put_text_key(&b, "tokenizer.chat_template",
                     json_string_value(json_object_get(item, "template")));
        assert_int_equal(gguf_parse(&m.gguf, b.data, b.n, "test"), 0);
        check_form(&m, item);
        gguf_close(m.gguf);
        free(b.data);
    }
    json_decref(tokens);
    json_decref(root);
}

/* Llama 3.2 asks for the day's date. */
static void todays_date(void **state)
{
    json_t *root = read_json(TEST_DATA("data/chat.json"));
    struct chat_message hello = {"user", "Hello"};
    char before[64], behind[64], *text;
    enum chat_form form;
    time_t now = time(NULL);

    (void)state;
    write_config(json_incref(json_object_get(root, "clock")));
    assert_int_equal(chat_detect(&form, &folder), 0);
    assert_int_equal(form, CHAT_LLAMA3);
    strftime(before, sizeof(before), "Today Date: %d %b %Y\n\n", localtime(&now));
    assert_int_equal(chat_render(&text, form, &folder, &hello, 1), 0);
    now = time(NULL);
    strftime(behind, sizeof(behind), "Today Date: %d %b %Y\n\n", localtime(&now));
    assert_true(strstr(text, before) || strstr(text, behind));
    free(text);
    json_decref(root);
}

static void refuse_template(void)
{
    enum chat_form form = CHAT_CHATML;
    struct capture c = capture_begin();
    int err = chat_detect(&form, &folder);
    char *line = capture_end(c);

    assert_int_equal(err, -ENOTSUP);
    assert_int_equal(form, CHAT_NONE);
    assert_true(capture_is_one_line(line));
    assert_non_null(strstr(line, "chat template"));
    free(line);
}

static void unknown_forms(void **state)
{
    json_t *root = read_json(TEST_DATA("data/chat.json"));
    const json_t *list = json_object_get(root, "unknown");

    (void)state;
    assert_true(json_array_size(list) >= 8);
    for (size_t i = 0; i < json_array_size(list); i++) {
        write_config(json_incref(json_array_get(list, i)));
        refuse_template();
    }
    remove(files_path("tokenizer_config.json"));
    refuse_template();
    json_decref(root);
}

static void refuse_messages(enum chat_form form, const struct chat_message *messages,
                            size_t n, const char *says)
{
    char *text = NULL;
    struct capture c = capture_begin();
    int err = chat_render(&text, form, &folder, messages, n);
    char *line = capture_end(c);

    assert_int_equal(err, -EINVAL);
    assert_null(text);
    assert_true(capture_is_one_line(line));
    assert_non_null(strstr(line, says));
    free(line);
}

static void wrong_messages(void **state)
{
    const struct chat_message tool[] = {{"tool", "x"}, {"user", "y"}};
    const struct chat_message late[] = {{"user", "x"}, {"system", "y"}, {"user", "z"}};
    const struct chat_message answer[] = {{"user", "x"}, {"assistant", "y"}};
    const struct chat_message system[] = {{"system", "x"}, {"user", "y"}};
    const struct chat_message twice[] = {{"user", "x"}, {"user", "y"}};
    json_t *root = read_json(TEST_DATA("data/chat.json"));
    const json_t *mistral = json_array_get(json_object_get(root, "forms"), 11);

    (void)state;
    write_config(json_incref(json_object_get(mistral, "template")));
    refuse_messages(CHAT_MISTRAL, tool, 2, "\"tool\"");
    refuse_messages(CHAT_MISTRAL, late, 3, "\"system\"");
    refuse_messages(CHAT_MISTRAL, answer, 2, "the last message");
    refuse_messages(CHAT_MISTRAL, answer, 0, "the last message");
    refuse_messages(CHAT_MISTRAL, system, 2, "no system message");
    refuse_messages(CHAT_MISTRAL, twice, 2, "in turns");
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_forms),   cmocka_unit_test(other_places),
        cmocka_unit_test(gguf_template), cmocka_unit_test(todays_date),
        cmocka_unit_test(unknown_forms), cmocka_unit_test(wrong_messages),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
