# shellcheck shell=sh disable=SC2154
# Makes tests/plans: every schedule's plan for one shape, and some more; PLANS is another
# folder to put them in. Refresh only when a schedule is meant to have changed.
set -e
out=${PLANS:-$srcdir/tests/plans}

# plan FILE NAME FLAGS...
plan() {
    file=$1
    shift
    "$PENSTOCK" schedule show "$@" -o "$out/$file"
}

for name in gpipe 1f1b 1f1b-eager interleaved looped-bfs zb-h1 zb-h2 zb-v v-half dualpipev \
    chimera dualpipe forward auto; do
    plan "$name-p4-m8.csv" "$name" -p 4 -m 8 --format csv
done
for name in 1f1b interleaved zb-h1 zb-v dualpipev dualpipe forward; do
    plan "$name-p4-m8-comm.csv" "$name" -p 4 -m 8 --format csv --comm
done
plan 1f1b-p4-m2.csv 1f1b -p 4 -m 2 --format csv
plan interleaved-p3-m7-v3-g4.csv interleaved -p 3 -m 7 -v 3 -g 4 --format csv
plan zb-v-p3-m4.csv zb-v -p 3 -m 4 --format csv
plan v-half-p5-m6.csv v-half -p 5 -m 6 --format csv
plan forward-p2-m5-v3.csv forward -p 2 -m 5 -v 3 --format csv
plan zb-h1-p3-m5.txt zb-h1 -p 3 -m 5 --latency 0.25
plan dualpipev-p2-m4.json dualpipev -p 2 -m 4 --pair-cost 2.5 --format json
plan 1f1b-p2-m3.trace.json 1f1b -p 2 -m 3 --format trace
plan zb-v-p2-m3.svg zb-v -p 2 -m 3 --format svg
"$PENSTOCK" schedule compare -p 4 -m 8 -o "$out/compare-p4-m8.txt"
