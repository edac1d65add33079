#!/usr/bin/env bash
# Fine-tunes SmolLM2 on a text, on two CPU lanes: the held-out loss before and after; then, if python3 has
# transformers, whether the saved folder gives the same logits there.
#
# usage: bench/finetune.sh BUILD MODEL TEXT [STEPS] [DIR]     DIR: where the checkpoint stays
set -eu
build=${1:?usage: bench/finetune.sh BUILD MODEL TEXT [STEPS] [DIR]}
model=${2:?usage: bench/finetune.sh BUILD MODEL TEXT [STEPS] [DIR]}
text=${3:?usage: bench/finetune.sh BUILD MODEL TEXT [STEPS] [DIR]}
steps=${4:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
dir=${5:-$work/out}

"$build/penstock" train -m "$model" --data "$text" --held-out 0.03 --seq 32 --batch 4 --micro-batches 2 \
    --steps "$steps" --lr 5e-5 --warmup 10 --devices cpu:0,cpu:1 --save "$dir" --log "$work/log" | tee "$work/result"
awk '/before/ { b = $2 } /^held_out_loss / { a = $2 } END { exit !(a < b) }' "$work/result" ||
    { echo "the held-out loss did not fall" >&2 && exit 1; }

python=${PYTHON:-python3}
if ! "$python" -c 'import transformers' 2>/dev/null; then
    echo "no transformers for $python: the folder was not compared" >&2
    exit 0
fi
awk 'BEGIN { srand(2); printf "[["; for (i = 0; i < 64; i++) printf "%s%d", i ? "," : "", rand() * 49152
    print "]]" }' >"$work/ids.json"
"$build/penstock" score -m "$dir/checkpoint-$steps" --ids "$work/ids.json" --logits "$work/logits.safetensors" \
    --devices cpu:0 >/dev/null
"$python" - "$dir/checkpoint-$steps" "$work" <<'PYTHON'
import json, sys
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, work = sys.argv[1:]
ours = load_file(work + "/logits.safetensors")["logits"]
AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
with torch.no_grad():
    theirs = model(torch.tensor(json.load(open(work + "/ids.json")))).logits
error = ((ours - theirs).norm() / theirs.norm()).item()
print(f"logits against transformers: relative 2-norm {error:.1e},",
      f"largest difference {(ours - theirs).abs().max().item():.1e},",
      f"same likeliest token {(ours.argmax(-1) == theirs.argmax(-1)).float().mean().item():.0%}")
sys.exit(error > 1e-4)
PYTHON
