"""Makes tests/data/tokenizers/: small tokenizers, and what the tokenizers and sentencepiece libraries encode and
decode with them. Needs tokenizers, sentencepiece and gguf; made with tokenizers 0.23, sentencepiece 0.2,
gguf 0.19.

usage: stages-tokenizers.py TESTS [CASES]    (the folder tests/; cases for each tokenizer)
"""
import io
import json
import pathlib
import random
import sys
import unicodedata

import gguf
import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

LETTERS = ("The river carries water to the turbines; a pipe of steel holds what the mountain sends. "
           "I'm sure you're ready, they'd say, WE'LL see and it's DONE. Don't wait for the second valve. "
           "for (int i = 0; i < 128; i++) { total += value[i] * 3.14; }  // a loop\n\treturn total;\n\n"
           "def forward(self, x):\n    if x is None:\n        return []\n    return x + 1\n"
           "Das Wasser fällt über die Straße, naïve Café, Ångström, élan. İstanbul'da 1923, 2024 ve 7. "
           "Река несёт воду к турбинам. Το νερό φτάνει στον στρόβιλο. 水は山から流れる。"
           "流水线并行，微批次。 물은 산에서 흐른다. الماء ينزل من الجبل. מים זורמים. पानी बहता है। "
           "Prices: $1,000 and €5 or 12345678; http://example.org/a_b?c=d&e=f#g <tag> [x] {y} 100%. ")
CORPUS = [LETTERS[i:i + 120] for i in range(0, len(LETTERS), 60)] * 3

WORDS = ("the river of water Hello world I'm you're WE'LL they'd don't 'S 'ſ 'll def return int main(void) {} [] == "
         "!= naïve café Ångström e\u0301 \u212b ﬁ straße İstanbul λόγος текст 日本語 テキスト 中文 한국어 العربية עברית "
         "हिन्दी ไทย 😀 👩\u200d👧 🇩🇪 ① ½ Ⅻ ² ٣ 7 42 123 4567 3.14e-10 0x7f 1,000 _snake_case camelCase HTTPServer "
         "http://a.b/c?d=e&f // /* */ <tag> ``` --- ... !? $100 №5 q\u0323\u0307 q\u0307\u0323").split(" ")
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", " \n \n  ", "\u00a0", "\u2003", "\u3000", "\u0085",
          "\u2028", "\x0b", "\x1c", "\u180e", "\u200b", "\ufeff"]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = ("A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
         "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
         "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b"
         "\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
         "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3"
         "\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
         "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
         "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
         "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
         "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
         "\U0001e900-\U0001e943")
MARK = "\u2581"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def code(r):
    """A character, of those that Unicode 14 and all later versions have."""
    while True:
        c = chr(r.choice([r.randrange(32, 127), r.randrange(1, 0x250), r.randrange(0x250, 0x3000),
                          r.randrange(0x3000, 0xd800), r.randrange(0xe000, 0x10000),
                          0x1f300 + r.randrange(0x300), 0x20000 + r.randrange(0x100)]))
        if unicodedata.category(c) != "Cn" or c in "\ud7ff":
            return c


def text(r, extra):
    words = WORDS + extra
    kind = r.randrange(5)
    if kind < 2:
        return "".join(r.choice(words) + r.choice([" ", " ", "", r.choice(SPACES)]) for _ in range(r.randrange(1, 14)))
    if kind == 2:
        return "".join(r.choice([r.choice(words), r.choice(SPACES), code(r)]) for _ in range(r.randrange(1, 24)))
    if kind == 3:
        return "".join(code(r) for _ in range(r.randrange(1, 24)))
    return "".join(r.choice("aab  \n\n'stl12 .#") for _ in range(r.randrange(1, 32)))


def texts(n, extra, seed=1):
    r = random.Random(seed)
    return ["", " ", "\n", "a", " a", "  a"] + [text(r, extra) for _ in range(n)]


def cases(tok, n, extra):
    out = []
    for t in texts(n, extra):
        ids = tok.encode(t, add_special_tokens=False).ids
        out.append([t, ids, tok.decode(ids, skip_special_tokens=True)])
    return out


def split(regex, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def byte_level(steps, size=420, normalizer=None, added=(), template=None, ignore_merges=False, prefix=False,
               regex=False):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps + [level]) if steps else level
    tok.decoder = decoders.ByteLevel()
    if normalizer:
        tok.normalizer = normalizer
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL])
    tok.add_tokens(list(added))
    if template:
        tok.post_processor = processors.Sequence([
            processors.ByteLevel(),
            processors.TemplateProcessing(single=template + " $A", special_tokens=[(template,
                                                                                   tok.token_to_id(template))])])
    return tok


def characters(pre, normalizer, strip, fallback=True, fuse=True, unknown="<unk>"):
    """SentencePiece's vocabulary in the form of tokenizer.json."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Replace(" ", MARK)
    tok.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    plain = [t for t in CORPUS if t.isascii()]
    tok.train_from_iterator(plain, trainers.BpeTrainer(vocab_size=260, show_progress=False))
    model = json.loads(tok.to_str())["model"]
    order = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    order += sorted(model["vocab"], key=model["vocab"].get)
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(order)}, [tuple(m) for m in model["merges"]],
                               unk_token=unknown, fuse_unk=fuse, byte_fallback=fallback))
    if normalizer:
        tok.normalizer = normalizer
    if pre:
        tok.pre_tokenizer = pre
    tok.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()] +
                                    ([decoders.Strip(" ", 1, 0)] if strip else []))
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ["<unk>", "<s>", "</s>"]])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tok


def flags():
    return byte_level([], normalizer=normalizers.NFKC(), prefix=True, regex=True, added=[
        AddedToken("<left>", lstrip=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=False),
        AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("word", single_word=True, normalized=False), AddedToken("ﬁx", normalized=True),
        AddedToken("<a>", normalized=False), AddedToken("<a><b>", normalized=False),
        AddedToken("<a><b><c>", normalized=True), AddedToken("Å", normalized=True),
        AddedToken("\n\n\n", normalized=False)])


FLAG_WORDS = ["<left>", "<right>", "<both>", "word", "words", "sword", "a_word", "ﬁx", "fix", "<a>", "<a><b>", "<a><b><c>",
              "Å", "A\u030a", "\n\n\n", " <left> ", "<right>  ", "<both>\n"]


def all_tokenizers():
    """Name, tokenizer, more words for its texts."""
    think = [AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)]
    yield "qwen2", byte_level([split(QWEN2)], normalizer=normalizers.NFC(), added=think), SPECIAL + ["<think>"]
    yield "smollm", byte_level([pre_tokenizers.Digits(individual_digits=True)], regex=True), SPECIAL
    yield "deepseek-v3", byte_level(
        [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK)], template="<|endoftext|>",
        added=[AddedToken("<｜User｜>", normalized=False)]), SPECIAL + ["<｜User｜>"]
    yield "deepseek-coder", byte_level(
        [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-\ud7ff]+"),
         pre_tokenizers.Digits(individual_digits=True)]), SPECIAL
    yield "deepseek-llm", byte_level(
        [split(r"[\r\n]"), split(r"\s?[" + CASED + "]+"), split(r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+"), split(r"\s+$"),
         split("[一-龥ࠀ-一가-\ud7ff]+"), pre_tokenizers.Digits(individual_digits=True)]), SPECIAL
    yield "tekken", byte_level([split(TEKKEN)], ignore_merges=True), SPECIAL
    yield "digits", byte_level([pre_tokenizers.Digits(individual_digits=False)], regex=True, size=320), SPECIAL
    yield "flags", flags(), SPECIAL + FLAG_WORDS
    for i, (rx, behavior, invert) in enumerate([
            (r"\s+", "removed", False), (r"[a-z]+", "isolated", True), (r"\s", "merged_with_previous", False),
            (r"\w", "contiguous", False), (r"\b", "merged_with_next", False), (r"\p{N}{1,2}+|[[\s]]".replace("[[", "[")
                                                                                .replace("]]", "]"), "merged_with_next",
                                                                                True), (r"x*\s+$", "isolated", False)]):
        yield f"split{i}", byte_level([split(rx, behavior, invert)], size=300), SPECIAL
    yield "split-string", byte_level([pre_tokenizers.Split(".", "merged_with_previous"),
                                      pre_tokenizers.Split("  ", "removed")], size=300), SPECIAL
    plain = ["<s>", "</s>", MARK, MARK + MARK]
    yield "llama", characters(None, normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]),
                              True), plain
    yield "metaspace-first", characters(pre_tokenizers.Metaspace(MARK, "first", False), None, True), plain
    yield "metaspace-always", characters(pre_tokenizers.Metaspace(MARK, "always", True), None, True), plain
    yield "metaspace-never", characters(pre_tokenizers.Metaspace(MARK, "never", True), None, False), plain
    yield "unknown", characters(pre_tokenizers.Metaspace(MARK, "always", True), None, True, False, False), plain
    yield "unknown-fused", characters(None, normalizers.Replace(Regex(r"\s+"), MARK), False, False, True), plain


def write_json(path, value):
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in value)
    path.write_text("[\n" + rows + "\n]\n", encoding="utf-8")


def sentencepiece_model():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(t for t in CORPUS for t in t.split("\n") if t), model_writer=model, model_type="bpe",
        vocab_size=500, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        character_coverage=0.98, user_defined_symbols=["<tool>", "<to"], split_digits=True, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_gguf(path, sp):
    n = sp.get_piece_size()
    kinds = [gguf.TokenType.UNKNOWN if sp.is_unknown(i) else gguf.TokenType.CONTROL if sp.is_control(i) else
             gguf.TokenType.BYTE if sp.is_byte(i) else gguf.TokenType.USER_DEFINED
             if sp.id_to_piece(i) in ("<tool>", "<to") else gguf.TokenType.NORMAL for i in range(n)]
    w = gguf.GGUFWriter(path, "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([sp.id_to_piece(i).encode() for i in range(n)])
    w.add_token_scores([sp.get_score(i) for i in range(n)])
    w.add_token_types(kinds)
    w.add_bos_token_id(sp.bos_id())
    w.add_unk_token_id(sp.unk_id())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def main():
    out = pathlib.Path(sys.argv[1]) / "data" / "tokenizers"
    n = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    out.mkdir(parents=True, exist_ok=True)
    for name, tok, extra in all_tokenizers():
        # One line for a part keeps the file small.
        parts = json.loads(tok.to_str())
        rows = ",\n".join(json.dumps(k) + ": " + json.dumps(v, ensure_ascii=False) for k, v in parts.items())
        (out / f"{name}.json").write_text("{\n" + rows + "\n}\n", encoding="utf-8")
        write_json(out / f"{name}.cases.json", cases(tok, n, extra))
    sp = sentencepiece_model()
    write_gguf(out / "spm.gguf", sp)
    rows = [[t, sp.encode(t), sp.decode(sp.encode(t))] for t in texts(2 * n, ["<tool>", "<to", "<tools>"])]
    # Whether a space is put before a user-defined token that begins a text, no two programs agree on.
    write_json(out / "spm.cases.json", [r for r in rows if not r[0].startswith("<to")])


if __name__ == "__main__":
    main()
