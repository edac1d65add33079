"""Makes tests/data/chat.json: chat templates in the forms that models have, and what transformers renders with them.
Needs transformers and tokenizers; made with transformers 5.24.

usage: stages-chat.py TESTS    (the folder tests/)
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

IM = "'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'"
OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
HEAD = "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
HEADER_OPEN = "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"

CHATML = "{% for message in messages %}{{ " + IM + " }}{% endfor %}" + OPEN
SMOLLM = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
          "{{ '<|im_start|>system\nYou help with Small things, and it\\'s fine<|im_end|>\n' }}{% endif %}{{ " + IM +
          " }}{% endfor %}" + OPEN)
QWEN2 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {{- messages[0]['content'] }}
    {{- '<|im_end|>\\n' }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a model of the test. You answer.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) or message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
RAW_CHATML = """{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] | trim }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = " + HEAD +
          " + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}"
          "{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}" + HEADER_OPEN + "{% endif %}")
LLAMA3_FIRST = LLAMA3.replace("{% if add_generation_prompt %}", "").removesuffix("{% endif %}")
LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- CLOCK %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: May 2021\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- HEAD + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""".replace("HEAD", HEAD)
R1 = ("{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
      "{% set ns = namespace(system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}"
      "{% set ns.system_prompt = message['content'] %}{%- endif %}{%- endfor %}{{bos_token}}{{ns.system_prompt}}"
      "{%- for message in messages %}{%- if message['role'] == 'user' %}{{'<｜User｜>' + message['content']}}{%- endif %}"
      "{%- if message['role'] == 'assistant' %}{% set content = message['content'] %}{% if '</think>' in content %}"
      "{% set content = content.split('</think>')[-1] %}{% endif %}"
      "{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}{%- endif %}{%- endfor %}"
      "{% if add_generation_prompt %}{{'<｜Assistant｜>THINK'}}{% endif %}")
ZEPHYR = "{% for message in messages %}\n" + "".join(
    "{% " + test + " message['role'] == '" + role + "' %}\n{{ '<|" + role + "|>\n' + message['content'] + eos_token }}\n"
    for test, role in (("if", "user"), ("elif", "system"), ("elif", "assistant"))) + (
        "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")
MISTRAL = ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
           "{{ raise_exception('turns') }}{% endif %}{% if message['role'] == 'user' %}"
           "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
           "{{ message['content'] + eos_tokenTAIL}}{% else %}{{ raise_exception('roles') }}{% endif %}{% endfor %}")
MISTRAL3 = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.WHERE and system_message is defined %}
            {{- "[INST]_" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]_" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- SPACEmessage["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
"""

S, U, A = "system", "user", "assistant"
PLAIN = [[(U, "Hello")], [(U, " How are\nyou? ")], [(U, "One"), (A, "Two"), (U, "Three")],
         [(U, "a"), (A, " b\n"), (U, "c"), (A, "<think>\nwhy\n</think>\n\nd"), (U, "é 中")]]
SYSTEM = [[(S, " Be brief. "), (U, "Hello")], [(S, "Be brief."), (U, "One"), (A, "Two"), (U, "Three")]]
BOTH = PLAIN + SYSTEM
FORMS = [
    ("chatml", "chatml", CHATML, BOTH),
    ("smollm", "chatml", SMOLLM, BOTH),
    ("qwen2", "chatml", QWEN2, BOTH),
    ("qwen3", "chatml", QWEN3, BOTH),
    ("raw-chatml", "chatml", RAW_CHATML, BOTH),
    ("llama3", "llama3", LLAMA3, BOTH),
    ("llama3-first", "llama3", LLAMA3_FIRST, BOTH),
    ("llama31", "llama3", LLAMA31.replace("CLOCK", 'set date_string = "26 Jul 2024"'), BOTH),
    ("r1", "deepseek-r1", R1.replace("THINK", ""), BOTH),
    ("r1-think", "deepseek-r1", R1.replace("THINK", "<think>\\n"), BOTH),
    ("zephyr", "zephyr", ZEPHYR, BOTH),
    ("mistral", "mistral", MISTRAL.replace("TAIL", ""), PLAIN),
    ("mistral-tail", "mistral", MISTRAL.replace("TAIL", " + ' '"), PLAIN),
    ("mistral-first", "mistral", MISTRAL3.replace("WHERE", "first").replace("_\"", " \"").replace("SPACE", '" " + '), BOTH),
    ("mistral-last", "mistral", MISTRAL3.replace("WHERE", "last").replace("_\"", "\"").replace("SPACE", ""), BOTH),
]
# Not rendered here: the day's date, and forms that penstock must not take for known ones.
CLOCK = LLAMA31.replace("CLOCK", 'set date_string = strftime_now("%d %b %Y")')
UNKNOWN = ["{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}",
           "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
           "{{ '<|user|>\\n<|assistant|>\\n<|system|>\\n' }}",
           CHATML.replace("'\\n' + message['content']", "'<|im_sep|>' + message['content']"),
           MISTRAL.replace("'[INST] '", "'[INST] <<SYS>>\\n'"),
           R1.replace("THINK", "</think>").replace("{{bos_token}}", "{{bos_token}}{% if thinking %}{% endif %}"),
           "", "{{ '<|im_start|>assistant\\n", "{% for"]


def render(template, messages):
    tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>",
                                  chat_template=template)
    return tok.apply_chat_template([{"role": r, "content": c} for r, c in messages], tokenize=False,
                                   add_generation_prompt=True)


def main():
    forms = [{"name": name, "form": form, "template": template,
              "cases": [[m, render(template, m)] for m in messages]} for name, form, template, messages in FORMS]
    path = pathlib.Path(sys.argv[1]) / "data" / "chat.json"
    value = {"forms": forms, "clock": CLOCK, "unknown": UNKNOWN}
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
