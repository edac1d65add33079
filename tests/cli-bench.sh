# penstock bench: lists and ranges and the order of their combinations, the four formats, figures that agree, tests
# that are skipped, interrupts, and command lines that are refused.
set -u

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
llama=${srcdir:?}/tests/reference/llama
lane=cpu:$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
failed=0
unset HWLOC_XMLFILE

complain() {
    echo "$1; stderr:"
    cat "$work/stderr"
    failed=1
}

# bench ARGUMENT...: on the small model and one lane, into $work/stdout.
bench() {
    timeout 60 "$PENSTOCK" bench -m "$llama" --devices "$lane" -r 2 "$@" \
        >"$work/stdout" 2>"$work/stderr"
}

# fields NAME...: of every line of JSON, one line each.
fields() {
    script=
    for name in "$@"; do
        script="$script;s/.*\"$name\": \"\{0,1\}\([^\",}]*\).*/&\n\1/;x;G;s/\n.*\n/ /;x;s/\n.*//"
    done
    sed -n "x;s/.*//;x$script;x;s/^ //;p" "$work/stdout"
}

# expect WHAT NAMES LINES: the fields of all results are these lines.
expect() {
    # shellcheck disable=SC2086
    fields $2 >"$work/fields"
    printf '%b\n' "$3" | cmp -s - "$work/fields" || {
        complain "$1: these are not the results expected:"
        cat "$work/fields"
    }
}

# refuse SAYS ARGUMENT...: one line, nothing printed, exit status 1.
refuse() {
    says=$1
    shift
    timeout 60 "$PENSTOCK" bench "$@" >"$work/stdout" 2>"$work/stderr"
    status=$?
    if [ $status -ne 1 ] || [ "$(wc -l <"$work/stderr")" -ne 1 ] ||
        ! grep -q -e "$says" "$work/stderr" || [ -s "$work/stdout" ]; then
        complain "bench $*: exit status 1, one line with \"$says\" expected, not $status"
    fi
}

is_json() {
    command -v python3 >/dev/null || return 0
    python3 -m json.tool "$1" >/dev/null 2>"$work/stderr" || complain "$1 is no JSON"
}

# --- Lists, ranges, and the order of what they make ---
bench -o jsonl -p 1-3,8-32*2 -n 10-20+5 -pg 4,2 -pg '6,3;7,1' || complain 'ranges'
expect ranges 'n_prompt n_gen' \
    '1 0\n2 0\n3 0\n8 0\n16 0\n32 0\n0 10\n0 15\n0 20\n4 2\n6 3\n7 1'
bench -o jsonl -p 8 -n 2 -d 0,16 -b 1,3 --micro-batches 1-2 -ub 4 || complain 'tests'
expect tests 'n_ubatch n_sequences n_micro_batches n_depth n_prompt n_gen' \
    "$(for b in 1 3; do for m in 1 2; do for d in 0 16; do
        [ $b -lt $m ] && m=1 # no more groups than sequences
        echo "4 $b $m $d 8 0"
        echo "4 $b $m $d 0 2"
    done; done; done)"
bench -o jsonl -p 8 -n 0 --shape "$llama" --devices "$lane,$lane" --stages 1-2 \
    --link copy,host --order strict,prio || complain 'set-ups'
expect set-ups 'model_type devices n_stages link order' "$(
    for model in 'llama 222K F32' 'llama 222K random'; do for n in 1 2; do for stages in 1 2; do
        for link in copy host; do for order in strict prio; do
            used=$link
            [ $n = 2 ] && [ $stages = 2 ] || used=none
            [ $n = 1 ] && echo "$model $lane $stages $used $order"
            [ $n = 2 ] && echo "$model $lane $stages $used $order"
        done; done
    done; done; done)"
bench -o jsonl -p 8 -n 0 --devices "$lane,$lane" --split '1,3;3,1' --stages 2 || complain 'splits'
grep -o '"split": "[^"]*"' "$work/stdout" | tr -d '\n' |
    grep -qx '"split": "1,3""split": "3,1""split": "1,3""split": "3,1"' || complain 'splits'

# --- Figures: of every result the speed is tokens over time ---
bench -o jsonl -r 3 -p 16 -n 8 -pg 16,8 -b 1,2 -d 0,5 || complain 'figures'
fields n_prompt n_gen n_sequences samples_ns samples_ts avg_ns avg_ts bubble |
    tr -d '[' | awk '
    function off(a, b) { return a < b * 0.999 || a > b * 1.001 }
    { n = ($1 + $2) * $3; if (off($5, n / $4 * 1e9)) bad = 1
      if ($7 < n / $6 * 1e9 * 0.999 || $6 <= 0 || $8 < 0 || $8 >= 1) bad = 1 }
    END { exit bad || NR != 12 }' || complain 'figures: they do not agree'
[ "$(grep -c '"samples_ns": \[[0-9]*, [0-9]*, [0-9]*\]' "$work/stdout")" -eq 12 ] ||
    complain 'figures: three samples expected'

# --- Formats ---
sizes='-p 8,1000 -n 2 -d 0,4'
# shellcheck disable=SC2086
for format in md csv json jsonl; do
    bench -o $format $sizes || complain "$format"
    cp "$work/stdout" "$work/$format"
done
awk -F'|' 'NF { lines++; if (NR == 1) n = NF; if (NF != n && !/^build: /) bad = 1 }
    END { exit bad || lines != 9 }' "$work/md" || complain 'md: rows and columns'
grep -q '| *pp8 | *[0-9.]* ± [0-9.]* | *[0-9.]* % |$' "$work/md" || complain 'md: pp8'
grep -q '| *tg2 @ d4 |' "$work/md" || complain 'md: tg2 @ d4'
grep -q '| *pp1000 | skipped: needs a context of 1000 tokens, the model has 256 | *- |$' "$work/md" ||
    complain 'md: pp1000'
awk -F'","' 'NR > 1 { lines++; if (NF != n) bad = 1 } NR == 1 { n = split($0, names, ",") }
    END { exit bad || n != 31 || lines != 6 }' "$work/csv" || complain 'csv: rows and columns'
is_json "$work/json"
[ "$(grep -c '"skipped": null' "$work/json")" -eq 4 ] || complain 'json: results'
[ "$(grep -c '"skipped": "needs a context' "$work/json")" -eq 2 ] || complain 'json: skipped'
while read -r line; do
    echo "$line" >"$work/line"
    is_json "$work/line"
done <"$work/jsonl"
[ "$(wc -l <"$work/jsonl")" -eq 6 ] || complain 'jsonl: six lines'
bench -o none -oe csv -p 8 -n 2 || complain '-oe'
[ ! -s "$work/stdout" ] || complain '-o none'
[ "$(wc -l <"$work/stderr")" -eq 3 ] || complain '-oe csv'

# --- What does not fit is skipped, and the rest runs ---
mkdir "$work/long"
sed 's/"max_position_embeddings": 256/"max_position_embeddings": 2000000000/' \
    "$llama/config.json" >"$work/long/config.json"
timeout 60 "$PENSTOCK" bench --shape "$work/long" --devices "$lane" -p 0 -n 0 -b 64 \
    -pg '8,4;16000000,1' -r 1 -o jsonl >"$work/stdout" 2>"$work/stderr" || complain 'memory'
fields n_prompt skipped | grep -q '^16000000 needs [0-9.]* GiB' || complain 'memory: a skipped test expected'
fields n_prompt skipped | grep -q '^8 null' || complain 'memory: a result expected'
bench -o jsonl -p 1000 -n 0 && complain 'nothing fits: exit status 1 expected'
grep -q 'no test could run' "$work/stderr" || complain 'nothing fits'

# --- An interrupt between results, and before the first ---
for depth in 0 200; do
    timeout --preserve-status -s INT 1 "$PENSTOCK" bench -m "$llama" --devices "$lane" -o json -d $depth \
        -p 1 -n 2 -pg 48,8 -r 20000 >"$work/stdout" 2>"$work/stderr"
    status=$?
    [ $status -eq 130 ] || complain "interrupt: exit status $status"
    is_json "$work/stdout"
done

# --- Refused ---
m="-m $llama --devices $lane"
refuse '-m MODEL' -p 8
# shellcheck disable=SC2086
{
    refuse '-p ' $m -p x
    refuse 'a value is empty' $m -p 1,
    refuse '-p ' $m -p 4-2
    refuse '-p ' $m -p 1-
    refuse '-p ' $m -p '1-8*1'
    refuse '-p ' $m -p '1-8+0'
    refuse 'begin at 1' $m -p '0-8*2'
    refuse '4096 values' $m -p 1-5000
    refuse '-n ' $m -n -1
    refuse '-d ' $m -d 1e3
    refuse '-b ' $m -b 0
    refuse '-r ' $m -r 0
    refuse '-pg ' $m -pg 1
    refuse '-pg ' $m -pg 1-2
    refuse '-pg ' $m -pg 1,2,3
    refuse 'needs a value' $m -pg
    refuse '-o ' $m -o yaml
    refuse '-oe ' $m -oe yaml
    refuse 'nothing to measure' $m -p 0 -n 0
    refuse 'combinations' $m -p 1-1000 -d 1-1000
    refuse 'exclude each other' $m --split 1,1 --layers 2,2
    refuse 'no flag --nothing' $m --nothing
    refuse 'unexpected argument' $m -p 8 more
    refuse '9 stages cannot share 4 layers' $m --stages 9
    refuse 'tpu:0' -m "$llama" --devices tpu:0
    refuse 'no link' $m --link tin
    refuse 'none: ' -m "$llama,$work/none"
    refuse 'llama-1t' --shape llama-1t
}

exit $failed
