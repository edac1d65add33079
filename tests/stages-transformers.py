"""Model folders that penstock wrote, in transformers: configuration, logits, ids, decoded text, chat prompts.

usage: stages-transformers.py PENSTOCK WRITER TESTS FOLDER    (WRITER: the program tests/stages-hf-write)
"""
import json
import os
import pathlib
import random
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

penstock, writer, tests, folder = sys.argv[1:]
tests, folder = pathlib.Path(tests), pathlib.Path(folder)
version = int(transformers.__version__.split(".", maxsplit=1)[0])
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


def run(*command, text=None):
    result = subprocess.run([str(c) for c in command], input=text, capture_output=True, check=False)
    assert result.returncode == 0, (command, result.stderr.decode())
    return result.stdout


def write(name, *model):
    """Writes the model, with weights in fp32; transformers must find every one, and no other."""
    out = folder / name
    out.mkdir()
    run(writer, *model, out)
    model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info.values()), (name, info)
    assert model.dtype == torch.float32, (name, model.dtype)
    return out, model.eval()


def rope(config):
    """RoPE settings, where either version of transformers has them."""
    settings = dict(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {})
    settings.setdefault("rope_theta", getattr(config, "rope_theta", None))
    settings.setdefault("rope_type", "default")
    return {key: value for key, value in settings.items() if value is not None}


SIZES = ["model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
         "num_attention_heads", "num_key_value_heads", "max_position_embeddings", "rms_norm_eps",
         "hidden_act", "tie_word_embeddings", "bos_token_id", "eos_token_id", "attention_bias", "mlp_bias"]


def same_config(name, got, want):
    for key in SIZES:
        a, b = getattr(got, key, None), getattr(want, key, None)
        assert a == b, (name, key, a, b)
    assert rope(got) == rope(want), (name, rope(got), rope(want))


def reference(name):
    """A folder of the reference models: as it is, and by its sizes alone."""
    source = tests / "reference" / name
    want = load_file(source / "reference.safetensors")
    out, model = write(name, source)
    same_config(name, AutoConfig.from_pretrained(out), AutoConfig.from_pretrained(source))
    if version >= 5 or "rope_theta" in json.loads((source / "config.json").read_text()):
        with torch.no_grad():
            logits = model(want["input_ids"].long()).logits
        error = (logits - want["logits"]).pow(2).sum() / want["logits"].pow(2).sum()
        assert error < 1e-9, (name, "logits", float(error))
    out, model = write(name + "-shape", "--shape", source)
    if version >= 5:
        same_config(name, AutoConfig.from_pretrained(out), AutoConfig.from_pretrained(source))
    assert model.generation_config.eos_token_id == model.config.eos_token_id


BASE = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
ROPES = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 2048},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 32.0,
     "beta_slow": 1.0, "truncate": True},
]
SHAPES = [("llama", {"attention_bias": True, "mlp_bias": True}), ("mistral", {"sliding_window": None}),
          ("qwen2", {}), ("qwen3", {})]


def shapes():
    """Every architecture by its sizes, with each kind of RoPE."""
    for kind, options in SHAPES:
        for i, scaling in enumerate([None] + ROPES):
            config = {"model_type": kind, **BASE, **options, "rope_scaling": scaling, "bos_token_id": 1,
                      "eos_token_id": [2, 7], "tie_word_embeddings": i % 2 == 1}
            name = f"{kind}-{i}"
            path = folder / (name + ".json")
            path.write_text(json.dumps(config), encoding="utf-8")
            out, model = write(name, "--shape", path)
            path = folder / (name + "-want")
            path.mkdir()
            (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
            same_config(name, model.config, AutoConfig.from_pretrained(path))
            assert AutoConfig.from_pretrained(out).architectures[0] == type(model).__name__
            assert model.generation_config.eos_token_id == [2, 7]


PIECES = ["the", " river", "Water", "'ll", "'S", " I'm", " 12345", "7", "3.14", " ", "   ", "\n", "\n\n", " \n ", "\t", "\r\n",
          "\u00a0", "\u3000", "\u200b", "\u0085", "é", "e\u0301", "Straße", " naïve", "水は山", "中文", "한국어", "العربية", "हिन्दी",
          "👩\u200d👧", "😀", "①½²Ⅻ", "٣", "//", "<tag>", "def f(x):\n    return", "{}[]", "HTTPServer", "snake_case",
          "http://a.b/c?d=e&f", "--- ...", "\u0000", "\x7f"]


def texts(special, count):
    draw = random.Random(1)
    pieces = PIECES + special * 3
    return ["", " ", *special] + ["".join(draw.choices(pieces, k=draw.randrange(1, 24))) for _ in range(count)]


def same_text(name, source, out, count, chat):
    """AutoTokenizer of what was written, against penstock with its source."""
    tokenizer = AutoTokenizer.from_pretrained(out)
    special = [t for t in tokenizer.all_special_tokens if t]
    for text in texts(special, count):
        ours = json.loads(run(penstock, "tokenize", "-m", source, "--special", "--bos", text=text.encode()))
        theirs = tokenizer(text).input_ids
        if not text.startswith(tuple(special)):  # there penstock does not start twice
            assert theirs == ours, (name, text, theirs, ours)
        theirs = tokenizer(text, add_special_tokens=False).input_ids
        ours = json.loads(run(penstock, "tokenize", "-m", source, "--special", text=text.encode()))
        assert theirs == ours, (name, text, theirs, ours)
        for flags, skip in (([], True), (["--special"], False)):
            back = run(penstock, "tokenize", "-m", source, "--decode", *flags, text=json.dumps(ours).encode())
            want = tokenizer.decode(ours, skip_special_tokens=skip)
            assert back.decode().removesuffix("\n") == want.removesuffix("\n"), (name, text, back, want)
    for text in ["Hi", " Explain two\nlines. ", "水は"] if chat else []:
        ours = json.loads(run(penstock, "tokenize", "-m", source, "--chat", text=text.encode()))
        form = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                             add_generation_prompt=True)
        assert tokenizer(form, add_special_tokens=False).input_ids == ours, (name, form)


TOKENIZERS = [("qwen2", "qwen2"), ("smollm", "smollm"), ("tekken", "tekken"), ("deepseek-v3", "deepseek-v3"),
              ("deepseek-coder", "deepseek-coder"), ("deepseek-llm", "deepseek-llm"), ("tok-gpt2", "gpt-2"),
              ("tok-llama3", "llama-bpe"), ("spm", None)]


def tokenizers():
    """Tokenizers of GGUF files, against what the original ones gave (tests/data/tokenizers, tests/reference)."""
    for name, pre in TOKENIZERS:
        reference_made = name.startswith("tok-")
        source = tests / "reference" / name / "tokenizer.json" if reference_made else tests / "data/tokenizers" / name
        cases = source.parent / "cases.json" if reference_made else source.with_name(name + ".cases.json")
        out = folder / f"tokenizer-{name}"
        out.mkdir()
        if pre:
            run(writer, "--tokenizer", source if reference_made else f"{source}.json", pre, out)
        else:
            run(writer, "--tokenizer", f"{source}.gguf", out)
        tokenizer = AutoTokenizer.from_pretrained(out)
        for case in json.loads(cases.read_text(encoding="utf-8")):
            text, ids, back = (case[k] for k in (("text", "ids", "decoded") if reference_made else (0, 1, 2)))
            got = tokenizer(text, add_special_tokens=False).input_ids
            assert got == ids, (name, text, got, ids)
            got = tokenizer(text).input_ids
            assert got == [tokenizer.bos_token_id] + ids, (name, text, got, ids)
            got = tokenizer.decode(ids, skip_special_tokens=not reference_made)
            assert got == back, (name, text, got, back)


def smollm2(path):
    out, model = write("smollm2", path)
    golden = json.loads((tests / "data" / "smollm2.json").read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(out)
    for prompt in golden["prompts"]:
        text = prompt["prompt"]
        if prompt["chat"]:
            text = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                                 add_generation_prompt=True)
            assert text == prompt["form"], text
        assert tokenizer(text).input_ids == prompt["ids"], text
        ids = torch.tensor([prompt["ids"]])
        tokens = model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
        assert tokens[0, ids.shape[1]:].tolist() == prompt["tokens"][:8], prompt["name"]
    same_text("smollm2", path, out, 60, True)


for each in ("llama", "llama-sharded-bf16", "qwen2", "qwen3"):
    reference(each)
shapes()
tokenizers()
if os.access(os.environ.get("PENSTOCK_SMOLLM2", ""), os.R_OK):
    smollm2(os.environ["PENSTOCK_SMOLLM2"])
