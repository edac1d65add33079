# penstock train: runs that end early, resume, fail, and what is left of them.
set -u

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
srcdir=$(cd "${srcdir:?}" && pwd)
llama=$srcdir/tests/reference/llama
qwen=$srcdir/tests/reference/qwen3
sharded=$srcdir/tests/reference/llama-sharded-bf16
allowed=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
first=cpu:${allowed%%[-,]*}
last=cpu:${allowed##*[-,]}
failed=0
cd "$work" || exit 1

awk 'BEGIN { srand(1); printf "["
             for (d = 0; d < 40; d++) {
                 printf "%s[", d ? "," : ""
                 for (i = 0; i < 20 + d; i++) printf "%s%d", i ? "," : "", int(rand() * 380)
                 printf "]" }
             print "]" }' >ids.json

complain() {
    echo "$1; stderr:"
    cat "$work/stderr"
    failed=1
}

# train FLAGS: with what all runs here have in common.
train() {
    timeout 120 "$PENSTOCK" train --data ids.json --seq 12 --batch 8 --micro-batches 4 --lr 1e-3 \
        "$@" >stdout 2>stderr
}

# same A B: two checkpoints have the same bits.
same() {
    for file in model.safetensors optimizer.safetensors training.json config.json; do
        cmp -s "$1/$file" "$2/$file" || complain "$1 and $2: $file differs"
    done
}

# says TEXT: the last run failed with one line that has the text.
says() {
    [ "$(grep -c 'error:' stderr)" -eq 1 ] || complain "one error expected"
    grep -q -e "$1" stderr || complain "'$1' is not said"
}

# ---- 20 steps are 10 and 10, whatever runs the second half
for model in "$llama" "$qwen" "$sharded"; do
    rm -rf whole half
    train -m "$model" --steps 20 --save whole --devices "$first" || complain "20 steps"
    train -m "$model" --steps 20 --save half --save-every 10 --devices "$first,$last" \
        --schedule zb-h1 || complain "20 steps on two lanes"
    same whole/checkpoint-20 half/checkpoint-20
    rm -r half/checkpoint-20
    for how in "$first --schedule gpipe" "$first,$last --schedule interleaved -V 2" \
        "$last,$first,$last,$first --schedule 1f1b-eager --order free" \
        "$first,$last --schedule zb-v --link host --recompute layer"; do
        rm -rf second
        # shellcheck disable=SC2086
        train --resume half --steps 20 --save second --devices $how || complain "resume on $how"
        same whole/checkpoint-20 second/checkpoint-20
    done
done

# ---- the log: a line per step, appended to by a resumed run
train -m "$llama" --steps 3 --save logged --devices "$first" --log log || complain "--log"
train --resume logged --steps 5 --save logged --devices "$first" --log log || complain "--log"
[ "$(wc -l <log)" -eq 5 ] || complain "5 lines of log expected"
for key in step loss grad_norm lr tokens_per_s step_s bubble bubble_predicted lanes bytes; do
    [ "$(grep -c "\"$key\":" log)" -eq 5 ] || complain "the log has no $key"
done
train -m "$llama" --steps 2 --devices "$first" --log /dev/full && complain "a full log is no error"
says "--log /dev/full: No space left"

cp log before-log
train -m "$llama" --data none.json --log log && complain "no data"
cmp log before-log || complain "a log is cut though no step was made"
train -m "$llama" --data none.json --log new && complain "no data"
[ ! -e new ] || complain "an empty log is left"
rm before-log
ln -s ids.json ids-link
cp -r "$llama" copied
echo >tiny.gguf
while read -r log model why; do
    cp -L "$log" before-log 2>stderr
    train -m $model --steps 1 --log "$log" && complain "--log $log is taken"
    says "--log $log: $why"
    cmp "$log" before-log || complain "--log $log has changed it"
done <<END
ids.json $llama the run reads this file
./ids-link $llama the run reads this file
copied/model.safetensors copied it is a file of a model
tiny.gguf tiny.gguf the run reads this file
END
train -m "$llama" --steps 1 --log no/log && complain "--log in no folder"
says "--log no/log: No such file"
train -m "$llama" --steps 1 --log "$work" && complain "--log to a folder"
says "--log .*: Is a directory"
train --resume logged --steps 7 --log logged/checkpoint-5/training.json && complain "a checkpoint's file as log"
says "it is a file of a model"

# ---- what is kept
train -m "$llama" --steps 6 --save kept --save-every 1 --keep 3 --devices "$first" ||
    complain "--keep"
[ "$(cd kept && echo *)" = "checkpoint-4 checkpoint-5 checkpoint-6" ] || complain "--keep 3"
[ "$(grep -c '^saved kept/checkpoint-' stderr)" -eq 6 ] || complain "6 checkpoints expected"
train --resume kept/checkpoint-5 --steps 7 --save other --devices "$first" || complain "from 5"
train --resume kept --steps 6 --devices "$first" || complain "nothing left"
grep -q "nothing left to train" stderr || complain "it is not said that nothing is left"

# ---- a folder of another run stays as it is, one that was made for nothing goes
cp -r kept before
train --resume logged --steps 7 --save kept --devices "$first" && complain "two runs in one folder"
says "checkpoints of another run"
diff -r before kept || complain "another run's folder has changed"
ln -s kept link
train --resume link --steps 7 --save "$work/kept" --devices "$first" || complain "its own folder"
rm -r link kept && mv before kept
train -m "$llama" --data none.json --save nothing && complain "no data"
[ ! -e nothing ] || complain "an empty folder is left"
mkdir here
train -m "$llama" --data none.json --save here && complain "no data"
[ -d here ] || complain "a folder that was there is gone"

# ---- refused, and why
"$PENSTOCK" schedule show 1f1b -p 2 -m 4 --format csv >plan.csv || complain "no plan"
echo 0F0,1F0,0B0,1B0 >cycle.csv
: >empty.jsonl
printf '{"ids":[1,2]}\n{"ids":[1,2\n' >cut.jsonl
printf '\377\0\1' >binary.jsonl
echo '[[]]' >none-to-predict.json
cp -r kept bare && rm bare/checkpoint-*/optimizer.safetensors
cp -r kept cut && truncate -s 5000 cut/checkpoint-6/model.safetensors
while IFS='|' read -r flags why; do
    # shellcheck disable=SC2086
    train $flags && complain "'$flags' succeeds"
    says "$why"
    [ "$(wc -l <stderr)" -eq 1 ] || complain "'$flags': one line expected"
done <<END
-m $llama --save kept|it has checkpoints of another run
--resume kept/checkpoint-4 --save kept|later than step 4
--resume $llama|there is no checkpoint
--resume nothing|nothing: No such file
--resume kept --steps 9 --seed 5|not the data that
--resume kept --steps 9 --seq 11|not the data that
--resume kept --steps 9 --held-out 0.1|not the data that
-m $llama --save-every 3|give --save
-m $llama --save no/such/folder|No such file
-m $llama --save ids.json|Not a directory
-m $llama --decay fast|expected cosine, linear or none
-m $llama --betas 0.9|expected two numbers
-m $llama --lr 1e-3 --min-lr 1|min-lr
-m $llama --betas 0.9,0.9999999|--betas 0.9999999
-m $llama --betas nan,0.9|--betas nan
-m $llama --lr nan|--lr nan
-m $llama --lr -1e-3|--lr -1e-3
-m $llama --min-lr inf|--min-lr inf
-m $llama --weight-decay -0.1|--weight-decay -0.1
-m $llama --clip inf|--clip inf
-m $llama --held-out nan|--held-out nan
-m $llama --deadline 0|--deadline 0
-m $llama --deadline inf|--deadline inf
-m $llama --resume kept|leave out -m
--shape $llama/config.json --resume kept|leave out --shape
-m $llama --data none.json|none.json
-m $llama --schedule forward|no backward
-m $llama --seq 100000|too long
-m $llama --batch 2|cannot share
-m $llama --stages 2|--stages is for inference
-m $llama --ubatch 4|--ubatch is for inference
-m $llama -c 64|-c is for inference
-m $llama --seq 200 --batch 1000000 --micro-batches 4|50000000 positions is too large
--shape llama-8b --seq 4096 --batch 4096 --micro-batches 1|shorter sequences (--seq)
-m $llama --schedule plan.csv -V 2|leave out -V
-m $llama --schedule plan.csv --devices $first|more lanes than
-m $llama --schedule plan.csv --micro-batches 3|outside of 2 stages and 3 micro-batches
-m $llama --schedule cycle.csv --micro-batches 1|cannot run
-m $llama --data empty.jsonl|the file is empty
-m $llama --data cut.jsonl|line 2: not valid JSON
-m $llama --data binary.jsonl|line 1: not valid JSON
-m $llama --data none-to-predict.json|nothing to predict
--resume bare --steps 9|optimizer.safetensors: No such file
--resume cut --steps 9|model.safetensors: malformed
-m $llama --recompute some|--recompute some
END
for command in train grad; do
    "$PENSTOCK" $command --help | grep -e --ubatch -e --ctx-size -e --stages &&
        complain "$command --help names flags of inference"
done
cp -r kept broken
truncate -s 1000 broken/checkpoint-6/optimizer.safetensors
train --resume broken --steps 8 --devices "$first" && complain "a cut file is read"
says optimizer.safetensors
echo '{"version": 2}' >broken/checkpoint-6/training.json
train --resume broken --steps 8 --devices "$first" && complain "version 2 is read"
says version

# ---- one run per folder
"$PENSTOCK" train -m "$llama" --data ids.json --seq 12 --devices "$first" --save busy \
    --steps 1000000 >stdout 2>stderr &
sleep 1
timeout 60 "$PENSTOCK" train -m "$llama" --data ids.json --seq 12 --devices "$first" --save busy \
    2>second-stderr && complain "two runs save to one folder"
grep -q "another run" second-stderr || complain "another run is not named"

# ---- a signal ends the step and saves it
kill -TERM $!
wait $! || complain "SIGTERM: exit status $?"
ls busy/checkpoint-*/model.safetensors >/dev/null || complain "SIGTERM saves nothing"
train --resume busy --steps 1 --devices "$first" || complain "what SIGTERM saved does not load"

# ---- a file that cannot grow costs the new checkpoint alone
train -m "$llama" --steps 4 --decay none --save full --devices "$first" || complain "before the disk is full"
(
    trap '' XFSZ
    ulimit -f 200
    train --resume full --steps 6 --decay none --save full --save-every 1 --devices "$first"
) && complain "a last checkpoint that is not written is no error"
grep -q "the one of step 4 stands" stderr || complain "it is not said what stands"
[ "$(ls -A full)" = checkpoint-4 ] || complain "left over: $(ls -A full)"
train --resume full --steps 6 --decay none --save full --devices "$first" || complain "after the disk was full"
train -m "$llama" --steps 6 --decay none --save unfull --devices "$last" || complain "without a full disk"
same full/checkpoint-6 unfull/checkpoint-6

# ---- faults are named
while read -r fault status what; do
    PENSTOCK_FAULT=$fault train -m "$llama" --steps 2 --save "f-$fault" --save-every 1 \
        --devices "$first,$last" --deadline 1 2>stderr
    [ $? -eq "$status" ] || complain "$fault: exit status"
    [ "$status" -eq 0 ] || says "$what"
done <<END
nan:1F3 1 lane 1 .*1F3, the forward of stage 1 for micro-batch 3
nan:0B3 1 lane 0 .*0B3, the backward of stage 0 for micro-batch 3
nan:1B3 1 lane 1 .*1B3, the backward of stage 1 for micro-batch 3
hang:1F2 1 lane 1, which is at 1F2
hang:0B1 1 lane 0, which is at 0B1
delay:0F3:30 1 stage 1, micro-batch 3, from lane 0, which is at 0F3
delay:0F3:0.1 0 -
delay:0F3:4295 1 stage 1, micro-batch 3, from lane 0, which is at 0F3
END
PENSTOCK_FAULT=delay:0F3:1.2 train -m "$llama" --steps 1 --devices "$first,$last" --deadline 1.9 ||
    complain "a deadline of 1.9 s has passed before"
PENSTOCK_FAULT=hang:0F3 train -m "$llama" --devices "$first,$last" --deadline 0.25 &&
    complain "a deadline of 0.25 s does not pass"
says "nothing has moved for 0.25 s"
PENSTOCK_FAULT=nan:1I3 train -m "$llama" --devices "$first,$last" --schedule zb-h1 && complain "1I3"
says "lane 1 .*1I3, the input gradient of stage 1 for micro-batch 3"
PENSTOCK_FAULT=nan:0W3 train -m "$llama" --devices "$first,$last" --schedule zb-h1 && complain "0W3"
says "lane 0 .*0W3, the weight gradient of stage 0 for micro-batch 3"
for op in 2F3 0F4 0I3 0SEND_F3; do
    PENSTOCK_FAULT=hang:$op train -m "$llama" --steps 2 --devices "$first,$last" ||
        complain "a fault of $op, which is not in the plan"
    [ "$(grep -c "the plan performs no $op" stderr)" -eq 1 ] || complain "$op: one warning expected"
done
PENSTOCK_FAULT=nan:1RECV_F3 train -m "$llama" --devices "$first,$last" && complain "a transfer computes"
says "PENSTOCK_FAULT"
PENSTOCK_FAULT=nan:what train -m "$llama" --devices "$first" && complain "a fault that is none"
says "PENSTOCK_FAULT"

# ---- kill -9 at any moment: the newest checkpoint loads and is what was last reported, or newer
for i in $(seq 50); do
    [ -d killed ] && from="--resume killed" || from="-m $llama"
    # shellcheck disable=SC2086
    "$PENSTOCK" train $from --data ids.json --seq 12 --batch 8 --save killed --save-every 1 \
        --steps 1000000 --devices "$first" >/dev/null 2>stderr &
    pid=$!
    sleep "0.$(awk -v seed="$i" 'BEGIN { srand(seed); printf "%03d", 150 + 450 * rand() }')"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    reported=$(sed -n 's/^saved killed.checkpoint-//p' stderr | tail -n 1)
    newest=$(ls killed 2>/dev/null | sed -n 's/^checkpoint-//p' | sort -n | tail -n 1)
    [ "${newest:-0}" -ge "${reported:-0}" ] || complain "saved $reported, there is $newest"
    [ -n "$newest" ] || { rm -rf killed; continue; }
    grep -q error: stderr && complain "kill $i"
done
train --resume killed --steps $((newest + 1)) --batch 8 --micro-batches 1 --save killed \
    --devices "$first" || complain "what was left after kill -9 does not load"
[ -z "$(ls -A killed | grep '^\.')" ] || complain "left over: $(ls -A killed)"
[ "$newest" -gt 50 ] || complain "only $newest steps in 50 runs"
exit $failed
