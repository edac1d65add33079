"""Makes tests/data/{quants.gguf,tiny.gguf,tiny/,rope.json,rope.safetensors,sums.json}: what other people's code
makes of files that penstock reads. Needs torch, transformers, gguf and safetensors; made with torch 2.15,
transformers 5.24, gguf 0.19, safetensors 0.8.

usage: stages-models.py TESTS    (the folder tests/)
"""
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Q
from safetensors.numpy import save_file
from safetensors.torch import load_file

tests = pathlib.Path(sys.argv[1])
out = tests / "data"
out.mkdir(exist_ok=True)
rng = np.random.default_rng(20240531)


def writer(path, arch):
    return gguf.GGUFWriter(path, arch)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def random_half(n):
    """Finite halves, some of them subnormal, zero or negative."""
    bits = rng.integers(0, 0x7C00, n).astype(np.uint16)
    bits[::5] &= 0x03FF
    return bits | (rng.integers(0, 2, n).astype(np.uint16) << 15)


# Where the fp16 scales lie in a block.
SCALES = {Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q8_0: [0],
          Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208]}


def quants():
    """Blocks of random bytes of every type, and gguf-py's own dequantisation of them."""
    w = writer(out / "quants.gguf", "quants")
    for q, scales in SCALES.items():
        elements, size = gguf.GGML_QUANT_SIZES[q]
        shape = (3, 256 * (2 if elements == 256 else 1))
        blocks = rng.integers(0, 256, (3 * shape[1] // elements, size)).astype(np.uint8)
        for at in scales:
            blocks[:, at:at + 2] = random_half(len(blocks)).view(np.uint8).reshape(-1, 2)
        raw = blocks.reshape(3, -1)
        w.add_tensor(q.name, raw, raw_shape=raw.shape, raw_dtype=q)
        values = gguf.quants.dequantize(raw, q).astype(np.float32).reshape(shape)
        w.add_tensor(q.name + ".values", values)
    half = random_half(512).view(np.float16).reshape(2, 256)
    w.add_tensor("F16", half)
    w.add_tensor("F16.values", half.astype(np.float32))
    wide = rng.standard_normal((2, 256)).astype(np.float32)
    bits = (wide.view(np.uint32) >> 16).astype(np.uint16)
    w.add_tensor("BF16", bits.view(np.uint8).reshape(2, -1), raw_dtype=Q.BF16)
    w.add_tensor("BF16.values", (bits.astype(np.uint32) << 16).view(np.float32))
    finish(w)


def permute(x, heads):
    """The order of rows of q and k in GGUF files of the llama architecture."""
    return x.reshape(heads, 2, -1, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


TINY = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            rms_norm_eps=1e-5, rope_theta=500000.0, bos_token_id=1, eos_token_id=[2, 5],
            tie_word_embeddings=False, head_dim=8, attention_bias=True, mlp_bias=True,
            rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                              high_freq_factor=4.0, original_max_position_embeddings=64))


def tiny():
    """One model as GGUF, quantised and permuted, and as a folder that holds the same values."""
    folder = out / "tiny"
    folder.mkdir(exist_ok=True)
    config = dict(model_type="llama", architectures=["LlamaForCausalLM"], **TINY)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**TINY))
    arch = gguf.MODEL_ARCH.LLAMA
    names = gguf.get_tensor_name_map(arch, TINY["num_hidden_layers"])
    w = writer(out / "tiny.gguf", "llama")
    w.add_block_count(2)
    w.add_context_length(256)
    w.add_embedding_length(32)
    w.add_feed_forward_length(64)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_key_length(8)
    w.add_value_length(8)
    w.add_rope_dimension_count(8)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_eot_token_id(5)
    types = [Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.F16, Q.F32, Q.BF16]
    hf = {}
    for i, (name, p) in enumerate(model.state_dict().items()):
        x = rng.standard_normal(p.shape).astype(np.float32) / 16
        q = types[i % len(types)] if x.ndim > 1 else Q.F32
        stored = gguf.quants.quantize(x, q)
        hf[name] = gguf.quants.dequantize(stored, q).astype(np.float32).reshape(x.shape)
        heads = 4 if ".q_proj." in name else 2 if ".k_proj." in name else 0
        if heads:
            stored = permute(stored, heads)
        base, _, suffix = name.rpartition(".")
        w.add_tensor(names.get_name(base) + "." + suffix, stored, raw_dtype=q)
    plain = transformers.LlamaConfig(**{**TINY, "rope_scaling": None})
    freq = [transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(c).inv_freq
            for c in (plain, transformers.LlamaConfig(**TINY))]
    w.add_tensor("rope_freqs.weight", (freq[0] / freq[1]).numpy())
    finish(w)
    save_file(hf, folder / "model.safetensors")


POSITIONS = [0, 1, 2, 3, 17, 100, 1000, 4095, 8191, 20000, 32767]
BASE = dict(vocab_size=64, hidden_size=256, intermediate_size=64, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32768)
ROPES = {
    "default": dict(rope_theta=10000.0),
    "default-96": dict(rope_theta=1000000, head_dim=96),
    "default-new": dict(rope_parameters=dict(rope_type="default", rope_theta=150000.0)),
    "linear": dict(rope_theta=10000.0, rope_scaling=dict(type="linear", factor=2.5)),
    "llama3": dict(rope_theta=500000.0, head_dim=128, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    "llama3-new": dict(rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0,
        high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "yarn": dict(rope_theta=1000000.0, head_dim=128, rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=32768)),
    "yarn-all": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=40.0, mscale=0.707,
        mscale_all_dim=1.0, beta_fast=16, beta_slow=2, truncate=False,
        original_max_position_embeddings=4096)),
    "yarn-factor": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=16.0, attention_factor=1.5, truncate=False,
        original_max_position_embeddings=2048)),
    "yarn-lengths": dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=None,
        original_max_position_embeddings=4096)),
    "yarn-flat": dict(rope_theta=10000.0, rope_scaling=dict(type="yarn", factor=2.0)),
}


def rope():
    configs, tables = {}, {"positions": np.array(POSITIONS, np.int32)}
    for name, extra in ROPES.items():
        configs[name] = dict(model_type="llama", **BASE, **json.loads(json.dumps(extra)))
        c = transformers.LlamaConfig(**BASE, **json.loads(json.dumps(extra)))
        r = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding(c)
        cos, sin = r(torch.zeros(1, dtype=torch.float32), torch.tensor([POSITIONS]))
        half = cos.shape[-1] // 2
        table = torch.stack((cos[0, :, :half], sin[0, :, :half]), -1)
        tables[name] = table.contiguous().numpy()
    (out / "rope.json").write_text(json.dumps(configs, indent=1) + "\n")
    save_file(tables, out / "rope.safetensors")


def sums():
    """Two sums over every weight of the reference models: by place, and of squares."""
    models = {}
    for folder in sorted((tests / "reference").glob("*/config.json")):
        found = models[folder.parent.name] = {}
        for path in sorted(folder.parent.glob("model*.safetensors")):
            for name, p in load_file(path).items():
                x = p.double().flatten().numpy()
                found[name] = [(x * (np.arange(len(x)) % 97 + 1)).sum(), (x * x).sum()]
    (out / "sums.json").write_text(json.dumps(models, indent=1) + "\n")


quants()
tiny()
rope()
sums()
for path in out.rglob("*"):
    path.chmod(0o755 if path.is_dir() else 0o644)
