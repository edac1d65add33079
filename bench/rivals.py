#!/usr/bin/env python3
"""The rivals of bench/device on the same GPU: PyTorch with transformers and SDPA, bf16, random weights.

usage: bench/rivals.py [prefill|decode|train ...]    (default: all)

Rows are as those of bench/device: shares of a matrix product of 8192 cubed and of a device-to-device copy, measured in
the same run. Prefill 4 x 2048; decode at context 512, a step captured as a CUDA graph over a static cache; training of
llama-1b, 4 x 2048, AdamW and clipping, eager and compiled. Medians of 7."""
import statistics
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

TRIES = 7
SHAPES = {
    "llama-1b": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                     intermediate_size=8192, vocab_size=128256, tie_word_embeddings=True),
    "llama-8b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                     intermediate_size=14336, vocab_size=128256, tie_word_embeddings=False),
}


def median_time(run, repeat=1):
    """Seconds of one run."""
    times = []
    for i in range(TRIES + 2):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(repeat):
            run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / repeat)
    return statistics.median(times[2:])


def ceilings():
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    flops = 2 * 8192**3 / median_time(lambda: a @ b.T, 20)
    x = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    y = torch.empty_like(x)
    copied = 2 * x.numel() / median_time(lambda: y.copy_(x), 10)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: matrix product {flops * 1e-12:.1f} TFLOP/s, "
          f"copy {copied * 1e-9:.1f} GB/s", flush=True)
    return flops, copied


def model_of(name):
    config = LlamaConfig(**SHAPES[name], max_position_embeddings=4096, attn_implementation="sdpa")
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
    return model


def products(s):
    """Weights in matrix products of the layers, and of the head."""
    C, F = s["hidden_size"], s["intermediate_size"]
    D = C // s["num_attention_heads"]
    layer = C * (C + 2 * s["num_key_value_heads"] * D) + C * C + 3 * C * F
    return s["num_hidden_layers"] * layer, C * s["vocab_size"]


def layer_flops(s, sequences, positions):
    return sequences * (2 * products(s)[0] * positions
                        + 2 * positions**2 * s["hidden_size"] * s["num_hidden_layers"])


def row_flops(what, seconds, flops, top):
    print(f"{what:44} {seconds * 1e3:10.3f} ms {flops / seconds * 1e-12:8.1f} TFLOP/s  {flops / seconds / top:5.3f} "
          "of the matrix product", flush=True)


def prefill(name, top, copied):
    s, model = SHAPES[name], model_of(name).eval()
    ids = torch.randint(s["vocab_size"], (4, 2048), device="cuda")
    with torch.inference_mode():
        seconds = median_time(lambda: model(ids, logits_to_keep=1))
    row_flops("prefill 4 x 2048", seconds, layer_flops(s, 4, 2048) + 4 * 2 * products(s)[1], top)


def decode(name, top, copied):
    s, model = SHAPES[name], model_of(name).eval()
    for sequences in (1, 32):
        with torch.inference_mode():
            cache = StaticCache(config=model.config, max_cache_len=512)
            ids = torch.randint(s["vocab_size"], (sequences, 511), device="cuda")
            model(ids, past_key_values=cache, cache_position=torch.arange(511, device="cuda"))
            token, at = ids[:, :1].clone(), torch.tensor([511], device="cuda")

            def step():
                return model(token, past_key_values=cache, cache_position=at, position_ids=at[None])

            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(3):
                    step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            seconds = median_time(graph.replay, 20)
        D = s["hidden_size"] // s["num_attention_heads"]
        cached = 2 * s["num_hidden_layers"] * s["num_key_value_heads"] * D * 512 * sequences
        moved = 2 * (sum(products(s)) + cached)
        print(f"{f'decode at 512, {sequences} sequences, CUDA graph':44} {seconds * 1e3:10.3f} ms "
              f"{moved / seconds * 1e-9:8.1f} GB/s     {moved / seconds / copied:5.3f} of the copy", flush=True)


def train(name, top, copied):
    if name != "llama-1b":
        return
    s = SHAPES[name]
    ids = torch.randint(s["vocab_size"], (4, 2049), device="cuda")
    for compiled in (False, True):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        model = model_of(name).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
        forward = torch.compile(model) if compiled else model

        def step():
            logits = forward(ids[:, :-1]).logits
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        seconds = median_time(step)
        row_flops(f"train 4 x 2048, AdamW, {'compiled' if compiled else 'eager'}", seconds,
                  3 * (layer_flops(s, 4, 2048) + 4 * 2048 * 2 * products(s)[1]), top)
        print(f"{'  memory':44} {torch.cuda.max_memory_allocated() / 2**30:10.1f} GiB", flush=True)


def main():
    if not torch.cuda.is_available():
        sys.exit("no GPU")
    tops = ceilings()
    for part in sys.argv[1:] or ["prefill", "decode", "train"]:
        for name in SHAPES:
            print(f"\n{name}, {part}", flush=True)
            globals()[part](name, *tops)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
