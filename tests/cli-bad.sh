# Malformed and impossible command lines, prompts, models and outputs: each ends within seconds with
# exit status 1, one line on stderr that names the fault, nothing on stdout, and no file half written.
set -u

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
models=${srcdir:?}/tests/reference
llama=$models/llama sharded=$models/llama-sharded-bf16
text=$work/text # a model with a tokenizer
ids=$work/ids.jsonl
lane=cpu:$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
out=$work/out
cases=0 failed=0
unset HWLOC_XMLFILE
mkdir "$out"

complain() {
    failed=$((failed + 1))
    echo "$1; status $status, stderr:"
    cat "$work/stderr"
}

# judge WHAT SAYS: the status and output of the last command.
judge() {
    cases=$((cases + 1))
    if [ $status -ne 1 ]; then
        complain "$1: exit status 1 expected"
    elif [ "$(wc -l <"$work/stderr")" -ne 1 ] || ! grep -q '^penstock: error: ' "$work/stderr"; then
        complain "$1: one line expected"
    elif ! grep -q -e "$2" "$work/stderr"; then
        complain "$1: \"$2\" expected"
    elif [ -s "$work/stdout" ]; then
        complain "$1: nothing expected on stdout, but: $(head -c 200 "$work/stdout")"
    elif [ -n "$(ls "$out")" ]; then
        complain "$1: files left: $(ls "$out")"
        rm -f "$out"/*
    elif [ "${SHOW_REFUSALS:-}" ]; then
        cat "$work/stderr"
    fi
}

# bad SAYS ARGUMENT...: runs penstock.
bad() {
    says=$1
    shift
    timeout 30 "$PENSTOCK" "$@" >"$work/stdout" 2>"$work/stderr" </dev/null
    status=$?
    judge "penstock $*" "$says"
}

# bad_text SAYS STDIN ARGUMENT...: with that text on standard input.
bad_text() {
    says=$1 input=$2
    shift 2
    printf '%b' "$input" | timeout 30 "$PENSTOCK" "$@" >"$work/stdout" 2>"$work/stderr"
    status=$?
    judge "penstock $* (input $input)" "$says"
}

# A run and a score on ids with a model that is well; then what is wrong.
run() {
    says=$1
    shift
    bad "$says" run -m "$llama" --prompts "$ids" -n 4 --devices "$lane" "$@"
}
score() {
    says=$1
    shift
    bad "$says" score -m "$llama" --ids "$work/ids.json" --devices "$lane" "$@"
}

# bad_model SAYS FOLDER: a model that cannot be loaded.
bad_model() {
    bad "$1" run -m "$2" --prompts "$ids" -n 4 --devices "$lane"
}

# prompts SAYS LINES: lines of a JSONL file, with escapes.
prompts() {
    printf '%b' "$2" >"$work/prompts.jsonl"
    bad "$1" run -m "$text" --prompts "$work/prompts.jsonl" -n 4 --devices "$lane"
}

# copy_of MODEL NAME: a copy that can be written; prints its folder.
copy_of() {
    cp -r "$1" "$work/$2"
    chmod -R u+w "$work/$2"
    rm -f "$work/$2/reference.safetensors"
    echo "$work/$2"
}

# patch FILE OFFSET BYTES: puts them there.
patch() {
    printf '%b' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# The offset of a tensor's data in a safetensors file whose header is shorter than 64 KiB.
data_of() {
    header=$(od -An -tu4 -N4 "$1" | tr -d ' ')
    at=$(head -c $((header + 8)) "$1" | tr '{' '\n' |
        sed -n "/^\"dtype\"/{s/.*\"data_offsets\":\[\([0-9]*\),.*/\1/p;q}")
    echo $((header + 8 + at))
}

echo '{"ids":[1,2,3]}' >"$ids"
echo '[[1,2,3],[4,5,6]]' >"$work/ids.json"
copy_of "$llama" text >/dev/null
cp "$models/tok-llama3/tokenizer.json" "$text/"
chmod u+w "$text/tokenizer.json"

# --- It does run: a wrong set-up must not look like good refusals ---
# good FILE ARGUMENT...: prints a result and writes FILE.
good() {
    file=$1
    shift
    "$PENSTOCK" "$@" --devices "$lane" >"$work/stdout" 2>"$work/stderr"
    status=$?
    if [ $status -ne 0 ] || [ ! -s "$work/stdout" ] || [ ! -s "$file" ]; then
        complain "penstock $*: a result expected"
    fi
}
good "$out/a.json" run -m "$llama" --prompts "$ids" -n 4 --json "$out/a.json"
good "$out/a" score -m "$llama" --ids "$work/ids.json" --logits "$out/a"
good "$work/stdout" run -m "$text" -p Hello -n 4
rm -f "$out"/*

# --- Commands and flags ---
bad 'no command jump' jump
bad 'no command' $'run\nfast'
bad 'no flag --nothing' run --nothing
bad 'no flag -z' run -z
bad 'no flag --nothing' score --nothing
bad 'no flag --nothing' tokenize --nothing
bad 'needs a value' run -m
bad 'needs a value' score --ids
bad 'takes no value' run --chat=yes
bad 'unexpected argument' run -m "$llama" -p a b
bad 'unexpected argument' tokenize -m "$llama" b
bad '-m MODEL' run -p a
bad '-m MODEL' tokenize
bad '-m MODEL' run -m "$llama" --shape smollm2-135m -p a
bad 'one of -p' run -m "$llama"
bad 'one of -p' run -m "$llama" -p a -f b
bad 'one of -f' score -m "$llama" -f a --ids b
run '-n ' -n 3x
run '-n ' -n -2
run '-n ' -n ''
run '-n ' -n 99999999999999999999
run '-c ' -c -1
run '--stages' --stages 0
run '--stages' --stages two
run '--micro-batches' --micro-batches 0
run '--micro-batches' --micro-batches 1000
run '--ubatch' --ubatch 0
run '--ubatch' --ubatch 1e3
run '--temp' --temp warm
run '--temp' --temp -1
run '--temp' --temp nan
run '--top-p' --top-p 1.5
run '--top-k' --top-k -1
run '--min-p' --min-p -0.1
run '--repeat-penalty' --repeat-penalty 0
run '--seed' --seed -1

# --- Stages and lanes ---
run '5 stages cannot share 4 layers' --stages 5
run '60000 stages' --stages 60000
run 'adds up to 3' --stages 2 --layers 1,2
run 'adds up to 5' --stages 2 --layers 1,4
run '--layers' --stages 2 --layers 1,3,0
run '--layers' --stages 2 --layers 2.5,1.5
run '--split' --stages 2 --split 3
run '--split' --stages 2 --split 3,
run '--split' --stages 2 --split 3,-1
run '--split' --stages 2 --split $'3,1\n'
run '--split' --stages 2 --split 3,nan
run 'exclude each other' --stages 2 --split 1,1 --layers 2,2
run 'tpu:0' --devices tpu:0
run 'cpu:' --devices cpu:
run 'a lane is missing' --devices "$lane,,$lane"
run 'a lane is missing' --devices ''
run '4095' --devices cpu:4095
run 'cpu:3-1' --devices cpu:3-1
run '999' --devices cuda:999
run 'cuda:0/' --devices cuda:0/0
run 'tin' --link tin
run 'nccl' --devices "$lane,$lane" --link nccl
run '--order' --order loose
run '--dtype' --dtype fp8
run 'bf16' --devices "$lane" --dtype bf16

# --- Prompts ---
run 'a context of 257' -c 257
run 'prompt 0 has 3 tokens' -c 3
score 'prompt 0 has 3 tokens' -c 2
bad 'is empty' run -m "$text" -p ''
bad 'give token ids' run -m "$llama" -p Hello
bad 'none.txt' run -m "$text" -f "$work/none.txt"
bad 'reference' run -m "$text" -f "$models"
bad 'none.jsonl' run -m "$text" --prompts "$work/none.jsonl"
bad 'none.json' score -m "$llama" --ids "$work/none.json"
bad 'nothing to predict' score -m "$text"
echo '[[5]]' >"$work/one.json"
bad 'nothing to predict' score -m "$llama" --ids "$work/one.json" --devices "$lane"
bad 'nothing to predict' grad -m "$llama" --ids "$work/one.json" --devices "$lane"
bad 'sequence 1 of 1 token' grad -m "$llama" --ids <(echo '[[1,2],[3]]') --devices "$lane"
bad '--stages is for inference' grad -m "$llama" --ids "$work/ids.json" --stages 2
bad 'no such schedule' grad -m "$llama" --ids "$work/ids.json" --schedule 2f2b
bad 'the number of lanes must be even, not 1' grad -m "$llama" --ids "$work/ids.json" \
    --schedule chimera --micro-batches 2 --devices "$lane"
bad '2 lanes need an even number of at least 4' grad -m "$llama" --ids "$work/ids.json" \
    --schedule dualpipe --micro-batches 2 --devices "$lane,$lane"
bad_text 'give token ids' Hello score -m "$llama"
prompts 'no prompts' ' \n\n'
prompts 'line 2' '{"ids":[1]}\n{"ids":[1}\n'
prompts 'line 1' '{"ids":[1]\n'
prompts 'line 1' '[1]\n'
prompts 'line 1' '{"ids":1}\n'
prompts 'line 1' '{"prompt":[1]}\n'
prompts 'line 1' '{"prompt":"a","ids":[1]}\n'
prompts 'line 1' '{"ids":[1],"ids":[2]}\n'
prompts 'item 1' '{"ids":[1,"2"]}\n'
prompts 'item 0' '{"ids":[1.5]}\n'
prompts 'item 0' '{"ids":[-1]}\n'
prompts 'item 0' '{"ids":[4294967297]}\n'
prompts 'line 1' '{"ids":[99999999999999999999]}\n'
prompts 'line 1' '{"prompt":"\xff\xfe"}\n'
prompts 'prompt 1 is empty' '{"ids":[1]}\n{"ids":[]}\n'
prompts 'prompt 0, token 1: id 384' '{"ids":[1,384]}\n'
prompts 'prompt 1, token 0: id 2147483647' '{"ids":[1]}\n{"ids":[2147483647]}\n'
for list in '' '[]' '{}' '7' '[[1],2]' '[["a"]]' '[[1,[2]]]' '[1' '[[1,2],[]]' '[[1,384]]'; do
    echo "$list" >"$work/bad.json"
    bad '' score -m "$llama" --ids "$work/bad.json"
done
echo '[[1,2],[3]]' >"$work/bad.json"
bad 'of one length' score -m "$llama" --ids "$work/bad.json" --logits "$out/a"
for list in '' '[1' '{"a":1}' '["a"]' '[-1]' '[[1]]'; do
    bad_text 'JSON list of token ids' "$list" tokenize -m "$text" --decode
done
bad_text '999999' '[999999]' tokenize -m "$text" --decode
bad_text 'tokenizer' Hello tokenize -m "$llama"
bad_text 'chat' Hello tokenize -m "$text" --chat
bad_text 'NUL' 'a\0b' tokenize -m "$text" --chat
bad_text 'NUL' 'a\0b' run -m "$text" --chat -f -

# --- Models; the readers of files have tests of their own ---
bad_model 'nowhere' "$work/nowhere"
bad_model 'config.json' "$out"
: >"$work/empty.gguf"
bad_model 'empty.gguf' "$work/empty.gguf"
head -c 20000 "$srcdir/tests/data/tiny.gguf" >"$work/cut.gguf"
bad_model 'cut.gguf' "$work/cut.gguf"
head -c 100 "$srcdir/tests/data/tiny.gguf" >"$work/header.gguf"
bad_model 'header.gguf' "$work/header.gguf"
head -c 4096 /dev/zero >"$work/zeros.gguf"
bad_model 'zeros.gguf' "$work/zeros.gguf"
m=$(copy_of "$llama" cut)
head -c 500000 "$llama/model.safetensors" >"$m/model.safetensors"
bad_model 'model.safetensors' "$m"
m=$(copy_of "$llama" nan)
patch "$m/model.safetensors" "$(data_of "$m/model.safetensors")" '\x00\x00\xc0\x7f'
bad_model 'NaN' "$m"
m=$(copy_of "$llama" infinite)
patch "$m/model.safetensors" $(($(stat -c %s "$m/model.safetensors") - 4)) '\x00\x00\x80\x7f'
bad_model 'infinite' "$m"
m=$(copy_of "$llama" huge)
patch "$m/model.safetensors" 0 '\xff\xff\xff\xff\xff\xff\xff\x7f'
bad_model 'model.safetensors' "$m"
m=$(copy_of "$sharded" shard)
rm "$m/model-00003-of-00006.safetensors"
bad_model 'model-00003-of-00006' "$m"
m=$(copy_of "$sharded" index)
rm "$m/model.safetensors.index.json"
bad_model 'safetensors' "$m"
m=$(copy_of "$llama" config)
rm "$m/config.json"
bad_model 'config.json' "$m"
# edited NAME SAYS EXPRESSION: a config.json that sed changed.
edited() {
    m=$(copy_of "$llama" "$1")
    sed -i "$3" "$m/config.json"
    cmp -s "$m/config.json" "$llama/config.json" && status=0 && complain "$1: sed changed nothing"
    bad_model "$2" "$m"
}
edited json 'config.json' 's/,$/;/'
edited arch 'gpt_neox' 's/"llama"/"gpt_neox"/'
edited wide '384 x 128' 's/"hidden_size": 64/"hidden_size": 128/'
edited deep 'layers' 's/"num_hidden_layers": 4/"num_hidden_layers": 5/'
edited none 'layers' 's/"num_hidden_layers": 4/"num_hidden_layers": 0/'
edited count '' 's/"num_hidden_layers": 4/"num_hidden_layers": 4000000000/'
edited negative '' 's/"vocab_size": 384/"vocab_size": -384/'
edited heads 'heads' 's/"num_key_value_heads": 2/"num_key_value_heads": 3/'
edited act 'gelu' 's/"silu"/"gelu"/'
m=$(copy_of "$text" tokenizer)
head -c 1000 "$text/tokenizer.json" >"$m/tokenizer.json"
bad 'tokenizer.json' run -m "$m" -p Hello -n 4
m=$(copy_of "$text" splitter)
sed -i 's/"ByteLevel"/"Whim"/' "$m/tokenizer.json"
bad 'Whim' run -m "$m" -p Hello -n 4
bad 'llama-1t' run --shape llama-1t --prompts "$ids"
bad 'none.json' run --shape "$work/none.json" --prompts "$ids"

# --- Outputs ---
run 'nowhere/a.json' --json "$work/nowhere/a.json"
run 'irectory' --json "$out"
score 'nowhere/a' --logits "$work/nowhere/a"
score 'irectory' --logits "$out"
if [ -c /dev/full ]; then
    score '/dev/full' --logits /dev/full
    for command in "run -m $llama --prompts $ids -n 4" "score -m $llama --ids $work/ids.json" \
        "run --help" "score --help" "tokenize --help" "--help" "--version"; do
        : >"$work/stdout"
        # shellcheck disable=SC2086
        timeout 30 "$PENSTOCK" $command >/dev/full 2>"$work/stderr"
        status=$?
        judge "penstock $command >/dev/full" 'standard output'
        # shellcheck disable=SC2086
        timeout 30 "$PENSTOCK" $command >&- 2>"$work/stderr"
        status=$?
        judge "penstock $command >&-" 'standard output'
    done
    # The text streams before the report fails.
    timeout 30 "$PENSTOCK" run -m "$llama" --prompts "$ids" -n 4 --json /dev/full >/dev/null 2>"$work/stderr"
    status=$?
    : >"$work/stdout"
    judge "penstock run --json /dev/full" '/dev/full'
    [ -c /dev/full ] || complain "/dev/full was replaced"
fi
timeout 30 "$PENSTOCK" run -m "$text" -f - <&- >"$work/stdout" 2>"$work/stderr"
status=$?
judge "penstock run -f - <&-" 'standard input'
# An old report stays as it was when a run fails.
echo old >"$work/old.json"
run '5 stages' --stages 5 --json "$work/old.json"
[ "$(cat "$work/old.json")" = old ] || complain "old.json was changed"

# --- Memory, where the program runs in a limited address space (not with ASan) ---
if (ulimit -v 4000000 && "$PENSTOCK" run -m "$llama" --prompts "$ids" -n 4; exit $?) >/dev/null 2>&1; then
    m=$(copy_of "$llama" long)
    sed -i 's/"max_position_embeddings": 256/"max_position_embeddings": 1000000000/' "$m/config.json"
    yes '{"ids":[1,2,3]}' | head -n 64 >"$work/many.jsonl"
    limited() {
        cases=$((cases + 1))
        (ulimit -v 4000000 && bad "$@" && exit $failed)
        failed=$?
    }
    limited 'memory' run -m "$m" --prompts "$ids" -n 16000000 --devices "$lane"
    limited 'memory' run -m "$m" --prompts "$work/many.jsonl" -n 1000000 --devices "$lane"
    limited 'memory' run -m "$m" --prompts "$ids" -c 1000000000 -n -1 --devices "$lane"
    limited 'memory' run --shape llama-8b --prompts "$ids" --devices "$lane"
fi

[ $cases -ge 100 ] || { echo "only $cases cases"; exit 1; }
[ $failed -eq 0 ] || echo "$failed of $cases cases misbehave"
[ $failed -eq 0 ]
