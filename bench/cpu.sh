#!/usr/bin/env bash
# Two CPU lanes against one, one processor each: prefill of SmolLM2, medians and their ratio.
#
# usage: bench/cpu.sh BUILD MODEL [REPEATS]
set -eu
build=${1:?usage: bench/cpu.sh BUILD MODEL [REPEATS]}
model=${2:?usage: bench/cpu.sh BUILD MODEL [REPEATS]}
repeats=${3:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# prompts COUNT TOKENS
prompts() {
    awk -v n="$1" -v t="$2" 'BEGIN { srand(1); for (i = 0; i < n; i++) {
        printf "{\"ids\":["; for (j = 0; j < t; j++) printf "%s%d", j ? "," : "", rand() * 49152
        print "]}" } }' >"$work/prompts"
}

# prefill LANES FLAGS...: median tokens per second
prefill() {
    local lanes=$1 i
    shift
    for ((i = 0; i < repeats; i++)); do
        "$build/penstock" run -m "$model" --devices "$lanes" --prompts "$work/prompts" -n 1 \
            "$@" 2>&1 >/dev/null | awk '/^prefill/ { print $(NF - 1) }'
    done | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

# compare NAME FLAGS...
compare() {
    local name=$1 one two
    shift
    one=$(prefill cpu:0 "$@")
    two=$(prefill cpu:0,cpu:1 "$@")
    awk -v n="$name" -v a="$one" -v b="$two" 'BEGIN {
        printf "%-34s %8.1f %8.1f tokens/s, ratio %.2f\n", n, a, b, b / a }'
}

printf '%-34s %8s %8s\n' "prefill, SmolLM2-135M, fp32" "one lane" "two"
prompts 8 512
compare "8 sequences of 512 tokens"
prompts 1 2048
compare "one of 2048 tokens, ubatch 256" --ubatch 256
