#!/usr/bin/env bash
# Everything that needs a GPU, in one go: tests, links, runs of whole models; then one table.
#
# usage: bench/gpu.sh BUILD [WHAT...]     WHAT: tests, runs, train, sanitize (default: tests runs train)
set -u
build=$(readlink -f "${1:?usage: bench/gpu.sh BUILD [tests] [runs] [train] [sanitize]}")
shift
srcdir=$(readlink -f "$(dirname "$0")/..")
export srcdir
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
table=$work/table
failed=0

row() { printf '%-44s %-8s %s\n' "$1" "$2" "${3-}" >>"$table"; }

# check NAME COMMAND...: one row; its output is shown where it fails.
check() {
    local name=$1 start=$SECONDS rc=0
    shift
    case $(type -t "$1") in
    function) "$@" ;;
    *) timeout -k 5 600 "$@" ;;
    esac >"$work/log" 2>&1 || rc=$?
    case $rc in
    0) row "$name" pass "$((SECONDS - start)) s" ;;
    77) row "$name" skipped ;;
    *)
        row "$name" "FAIL" "exit status $rc"
        failed=1
        echo "--- $name" && tail -n 40 "$work/log"
        ;;
    esac
}

tests() {
    local test lanes
    for test in "$build"/tests/kernels-twin*; do
        check "CUDA against CPU: ${test##*/}" "$test"
    done
    check "links between slices" "$build/tests/runtime-link-gpu"
    check "lanes" "$build/tests/runtime-lane"
    for lanes in cuda:0 cuda:0/2 cuda:0/4 cpu:0,cuda:0,cpu:1; do
        PENSTOCK_TEST_DEVICES=$lanes PENSTOCK_TEST_VERBOSE=1 \
            check "whole models on $lanes" "$build/tests/runtime-reference"
        grep 'squared error' "$work/log" >>"$work/errors"
    done
    if [ -n "${PENSTOCK_SMOLLM2-}" ]; then
        for lanes in cuda:0 cuda:0/4; do
            PENSTOCK_TEST_DEVICES=$lanes check "SmolLM2 against transformers on $lanes" \
                "$build/tests/runtime-smollm2"
        done
    fi
    for lanes in cuda:0 cuda:0/2 cuda:0/4; do
        PENSTOCK_TEST_DEVICES=$lanes check "gradients of every schedule on $lanes" \
            "$build/tests/runtime-grad"
        PENSTOCK_TEST_DEVICES=$lanes check "training through every schedule on $lanes" \
            "$build/tests/runtime-train-run"
    done
    check "topo" "$build/penstock" topo --devices cuda:0/4 --svg "$work/topo.svg"
    cat "$work/log"
}

# prompts COUNT TOKENS VOCABULARY
prompts() {
    awk -v n="$1" -v t="$2" -v v="$3" 'BEGIN { srand(1); for (i = 0; i < n; i++) {
        printf "{\"ids\":["; for (j = 0; j < t; j++) printf "%s%d", j ? "," : "", rand() * v
        print "]}" } }'
}

# run SHAPE DEVICES LINK: 8 prompts of 512 tokens, 64 new ones.
run() {
    local name="$1 on $2, $3"
    if timeout -k 5 120 "$build/penstock" run --shape "$1" --devices "$2" --link "$3" --ignore-eos -n 64 \
        --prompts "$work/prompts" >/dev/null 2>"$work/log"; then
        row "$name" pass "$(awk '/^prefill/ { p = $(NF - 1) } /^decode/ { d = $(NF - 1) }
            /bubble/ { b = $(NF - 1) } END {
            printf "prefill %s, decode %s tokens/s, bubble %s %%", p, d, b }' "$work/log")"
    else
        row "$name" FAIL
        failed=1
    fi
    echo "--- $name" && cat "$work/log"
}

runs() {
    local shape
    prompts 8 512 49152 >"$work/prompts"
    for shape in smollm2-135m llama-1b llama-8b; do
        run $shape cuda:0 auto
        run $shape cuda:0/2 copy
        run $shape cuda:0/4 copy
        run $shape cuda:0/4 nccl
    done
}

# values KEY: a key's value of every line of the log but the first two, whose shapes are new.
values() { tail -n +3 "$work/steps" | grep -o "\"$1\":[-0-9.e+]*" | cut -d: -f2; }
median() { sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }

# Mebibytes of GPU memory in use, every tenth of a second.
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0 -lms 100; }

# train SCHEDULE M LINK FLAGS...: llama-1b on four slices, M micro-batches of 2 x 1024 tokens; a step's plan as simulated
# with the run's own op times beside the measured one; memory as predicted beside what the driver says.
train() {
    local name="train $1, m = $2, $3" idle peak smi
    idle=$(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits -i 0)
    used >"$work/used" &
    smi=$!
    if timeout -k 5 200 "$build/penstock" train --shape llama-1b --devices cuda:0/4 --data "$work/ids.jsonl" \
        --schedule "$1" --micro-batches "$2" --batch $((2 * $2)) --seq 1024 --steps 9 --link "$3" \
        --log "$work/steps" "${@:4}" >/dev/null 2>"$work/log"; then
        peak=$(sort -g "$work/used" | tail -n 1)
        row "$name" pass "$(printf '%8.1f %8.1f %+6.1f %% %6.1f %6.1f %8.0f %8.0f %8.0f' \
            "$(values plan_s_predicted | median | awk '{ print 1e3 * $1 }')" \
            "$(values plan_s | median | awk '{ print 1e3 * $1 }')" \
            "$(paste <(values plan_s) <(values plan_s_predicted) | awk '{ print 100 * ($1 / $2 - 1) }' | median)" \
            "$(values bubble_predicted | median | awk '{ print 100 * $1 }')" \
            "$(values bubble | median | awk '{ print 100 * $1 }')" \
            "$(values tokens_per_s | median)" \
            "$(tail -n 1 "$work/steps" | grep -o '"bytes_predicted":[0-9]*' | cut -d: -f2 |
                awk '{ s += $1 } END { print s / 1048576 }')" \
            "$((peak - idle))")"
    else
        row "$name" FAIL
        failed=1
    fi
    kill $smi
    wait $smi 2>/dev/null
    echo "--- $name" && cat "$work/log"
}

trains() {
    local schedule
    prompts 70 1100 128256 >"$work/ids.jsonl"
    row "llama-1b on cuda:0/4, 2 x 1024 tokens" "" \
        "sim. ms  meas. ms  differ  bubble sim., meas. %  tokens/s  MiB pred., driver's"
    for schedule in gpipe 1f1b 1f1b-eager "interleaved -V 2" zb-h1 zb-h2 zb-v dualpipev; do
        # shellcheck disable=SC2086 # a schedule with its flags
        train ${schedule%% *} 16 copy ${schedule#"${schedule%% *}"}
    done
    for schedule in gpipe 1f1b zb-h1 zb-v; do
        train $schedule 32 copy
        train $schedule 16 nccl
    done
}

# raceless COMMAND...: racecheck, without what it says of cuBLAS's kernels (nvjet), which synchronise by means that it
# does not know.
# shellcheck disable=SC2317 # check calls it
raceless() {
    local races
    compute-sanitizer --tool racecheck "$@" >"$work/races" 2>&1
    races=$(grep 'Race reported' "$work/races" | grep -vc nvjet)
    cat "$work/races"
    grep -q 'RACECHECK SUMMARY' "$work/races" && [ "$races" -eq 0 ]
}

# sanitized TOOL NAME COMMAND...: API errors that a test provokes are its own affair.
sanitized() {
    case $1 in
    racecheck) check "compute-sanitizer $1, $2" raceless "${@:3}" ;;
    *)
        check "compute-sanitizer $1, $2" compute-sanitizer --tool "$1" --error-exitcode 9 \
            --report-api-errors no "${@:3}"
        ;;
    esac
}

sanitize() {
    local tool test
    prompts 3 20 384 >"$work/prompts"
    for tool in memcheck racecheck; do
        for test in "$build"/tests/kernels-twin*; do
            sanitized $tool "${test##*/}" "$test"
        done
        sanitized $tool "a run on slices" "$build/penstock" run \
            -m "$srcdir/tests/reference/qwen3" --prompts "$work/prompts" --devices cuda:0/2 -n 4 \
            --ubatch 16 --link copy
    done
}

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader || exit 77
[ $# -gt 0 ] || set -- tests runs train
for part in "$@"; do
    case $part in
    tests) tests ;;
    runs) runs ;;
    train) trains ;;
    sanitize) sanitize ;;
    *) echo "no part $part" >&2 && exit 1 ;;
    esac
done
echo
cat "$work/errors" 2>/dev/null
echo
cat "$table"
exit $failed
