"""Makes tests/data/smollm2.json: what transformers computes from the GGUF file of SmolLM2-135M-Instruct, in fp32 on
the CPU with eager attention. Five prompts with 64 greedy tokens each (end-of-text tokens do not end them), and the
likelihood of tests/data/smollm2-text.txt as one sequence.

Token ids are made by the tokenizers library from the file's own vocabulary, merges and pre-tokenizer (`smollm`:
every digit alone, then GPT-2's pattern). transformers' own reader of GGUF tokenizers leaves the digits out and
knows three special tokens of seventeen; each prompt says whether its ids are the same.

Made with torch 2.15, transformers 5.24, tokenizers 0.23, gguf 0.19.

usage: smollm2.py MODEL.gguf TESTS    (the folder tests/)
"""
import json
import pathlib
import sys

import gguf
import tokenizers
import torch
import transformers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

NEW = 64
NEAR_TIE = 1e-3
CONTROL = 3  # a token type of GGUF

PROMPTS = [
    ("chat", True, "Explain in three sentences why a clock that is wrong twice a day is not a good clock."),
    ("plain", False, "The lighthouse keeper had written the same sentence in the log every evening for eleven years, "
                     "and on the last page"),
    ("code", False, "def moving_average(values, width):\n"
                    "    \"\"\"Mean of each run of `width` values.\"\"\"\n"
                    "    table = [\n"
                    "        1, 20, 300,\n"
                    "        4000,  50000,\n"
                    "    ]\n"
                    "    total = 0.0\n"),
    ("french", False, "Le fleuve descend de la montagne et traverse la vallée. Question : où va l'eau ? Réponse :"),
    ("scripts", False, "日本語: 川は山から流れる。\nРусский: река течёт с гор. \U0001f30a\n"
                       "Ελληνικά: το ποτάμι — naïve café\n\nEnglish:"),
]


def file_tokenizer(path):
    """The tokenizer that the file describes, and its vocabulary."""
    fields = gguf.GGUFReader(path).fields

    def field(name):
        return fields["tokenizer.ggml." + name].contents()

    assert field("model") == "gpt2" and field("pre") == "smollm" and not field("add_bos_token")
    tokens = field("tokens")
    t = tokenizers.Tokenizer(models.BPE(
        vocab={s: i for i, s in enumerate(tokens)},
        merges=[tuple(m.split(" ")) for m in field("merges")]))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False)
                          for s, kind in zip(tokens, field("token_type")) if kind == CONTROL])
    return t


def greedy(model, ids):
    """NEW tokens, each the likeliest, and by how much its logit exceeds the second."""
    tokens, gaps, past, feed = [], [], None, ids
    for _ in range(NEW):
        out = model(torch.tensor([feed]), past_key_values=past, use_cache=True)
        best = out.logits[0, -1].topk(2)
        tokens.append(best.indices[0].item())
        gaps.append((best.values[0] - best.values[1]).item())
        past, feed = out.past_key_values, tokens[-1:]
    return tokens, gaps


def is_greedy(model, ids, tokens):
    """Whether the model takes these tokens, too; in one pass."""
    logits = model(torch.tensor([ids + tokens[:-1]])).logits[0, len(ids) - 1:]
    return logits.argmax(-1).tolist() == tokens


def score(model, ids):
    """Mean log-likelihood of every token after the first; fp32 logits, the sum in fp64."""
    ids = torch.tensor([ids])
    logits = model(ids).logits[0, :-1].double()
    return logits.log_softmax(-1).gather(1, ids[0, 1:, None]).mean().item()


def answer(prompt, tokenizer, theirs, model, exact):
    name, chat, text = prompt
    form = theirs.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                      add_generation_prompt=True) if chat else text
    ids = tokenizer.encode(form).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == form
    tokens, gaps = greedy(model, ids)
    assert is_greedy(exact, ids, tokens), f"{name}: float64 disagrees"
    print(f"{name}: {len(ids)} tokens, smallest gap {min(gaps):.4f}")
    print("   " + tokenizer.decode(tokens).replace("\n", "\n   "))
    return {
        "name": name, "chat": chat, "prompt": text, "form": form, "ids": ids,
        "transformers_ids_equal": theirs(form).input_ids == ids,
        "tokens": tokens, "gap": [round(g, 5) for g in gaps],
        "near_ties": [i for i, g in enumerate(gaps) if g < NEAR_TIE],
        "text": tokenizer.decode(tokens),
    }


@torch.no_grad()
def main():
    path, tests = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = file_tokenizer(path)
    theirs = transformers.AutoTokenizer.from_pretrained(**source)
    model, exact = [transformers.AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.float32, attn_implementation="eager").eval().to(dtype)
        for dtype in (torch.float32, torch.float64)]
    text = (tests / "data/smollm2-text.txt").read_bytes().decode()
    ids = tokenizer.encode(text).ids
    mean = score(model, ids)
    print(f"text: {len(ids)} tokens, mean log-likelihood {mean:.8f}, in float64 {score(exact, ids):.8f}")
    out = {
        "model": "SmolLM2-135M-Instruct, GGUF, Q4_1",
        "prompts": [answer(p, tokenizer, theirs, model, exact) for p in PROMPTS],
        "score": {"file": "smollm2-text.txt", "ids": ids,
                  "transformers_ids_equal": theirs(text).input_ids == ids, "predicted": len(ids) - 1,
                  "mean_logprob": mean, "perplexity": float(torch.tensor(-mean, dtype=torch.float64).exp())},
    }
    lines = json.dumps(out, ensure_ascii=True, indent=1)
    for key in ("ids", "tokens", "gap", "near_ties"):  # lists of numbers on one line
        lines = fold(lines, key)
    (tests / "data/smollm2.json").write_text(lines + "\n")


def fold(text, key):
    head, *rest = text.split(f'"{key}": [')
    parts = [head]
    for r in rest:
        inner, tail = r.split("]", 1)
        parts.append(f'"{key}": [' + ", ".join(x.strip() for x in inner.split(",")) + "]" + tail)
    return "".join(parts)


main()
