# Files that penstock writes: where names lead, permissions, pipes, and what is refused before work.
set -u

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
llama=${srcdir:?}/tests/reference/llama
lane=cpu:$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
topology=$srcdir/tests/topologies/power8-4gpu.xml
unset HWLOC_XMLFILE
failed=0
echo '{"ids":[1,2,3]}' >"$work/ids.jsonl"
echo '[1,2,3,4]' >"$work/ids.json"

complain() {
    echo "$1; stderr:"
    cat "$work/stderr"
    failed=1
}

# The three that write: a picture, a report, a safetensors file.
# shellcheck disable=SC2317
topo() {
    HWLOC_XMLFILE=$topology timeout 60 "$PENSTOCK" topo --svg "$1" 2>"$work/stderr"
}
# shellcheck disable=SC2317
run() {
    timeout 60 "$PENSTOCK" run -m "$llama" --prompts "$work/ids.jsonl" -n 4 --devices "$lane" \
        --json "$1" 2>"$work/stderr"
}
# shellcheck disable=SC2317
score() {
    timeout 60 "$PENSTOCK" score -m "$llama" --ids "$work/ids.json" --devices "$lane" \
        --logits "$1" 2>"$work/stderr"
}

# whole WRITER FILE: the file has what only comes with all of it.
whole() {
    case $1 in
    topo) grep -q '</svg>' "$2" ;;
    run) grep -q '"ttft_s"' "$2" ;;
    score) grep -a -q '"data_offsets"' "$2" && [ "$(wc -c <"$2")" -gt 1000 ] ;;
    esac || complain "$1: $2 is not whole"
}

# writes WRITER FILE: it succeeds, whatever it prints.
writes() {
    "$1" "$2" >"$work/stdout" || complain "$1 $2: exit status $?"
}

# refuses WRITER FILE: one line, and nothing printed.
refuses() {
    "$1" "$2" >"$work/stdout" && complain "$1 '$2' succeeds"
    [ "$(wc -l <"$work/stderr")" -eq 1 ] || complain "$1 '$2': one line expected"
    [ ! -s "$work/stdout" ] || complain "$1 '$2' prints before it is refused"
}

for writer in topo run score; do
    d=$work/$writer
    mkdir -p "$d/there"
    writes $writer "$d/new"
    whole $writer "$d/new"
    [ "$(stat -c %a "$d/new")" = "$(printf %o $((0666 & ~$(umask))))" ] ||
        complain "$writer: the permissions of a new file"
    echo old >"$d/old"
    for mode in 600 664; do
        chmod $mode "$d/old"
        writes $writer "$d/old"
        whole $writer "$d/old"
        [ "$(stat -c %a "$d/old")" = $mode ] || complain "$writer: $mode is lost"
    done

    # Links stay, whether what they name exists or not.
    echo old >"$d/there/file"
    ln -s there/file "$d/link"
    ln -s link "$d/link2"
    ln -s there/none "$d/dangling"
    ln -s "$d/circle" "$d/circle"
    writes $writer "$d/link2"
    writes $writer "$d/dangling"
    for link in link link2 dangling; do
        [ -L "$d/$link" ] || complain "$writer: the link $link was replaced"
    done
    whole $writer "$d/there/file"
    whole $writer "$d/there/none"
    refuses $writer "$d/circle"

    mkfifo "$d/fifo"
    timeout 20 cat "$d/fifo" >"$d/read" &
    writes $writer "$d/fifo"
    [ -p "$d/fifo" ] || complain "$writer: the pipe was replaced"
    wait
    whole $writer "$d/read"

    # Descriptors, as /dev/stdout links to them: a pipe, and a file that already has something.
    $writer >(cat >"$d/process") >/dev/null || complain "$writer: a substituted process"
    wait $!
    whole $writer "$d/process"
    ln -s /proc/self/fd/1 "$d/stdout"
    $writer "$d/stdout" | cat >"$d/piped"
    [ "${PIPESTATUS[0]}" -eq 0 ] || complain "$writer: standard output is a pipe"
    whole $writer "$d/piped"
    { echo before; $writer "$d/stdout"; echo after; } >"$d/both"
    whole $writer "$d/both"
    [ "$(sed -n '1p;$p' "$d/both")" = "before
after" ] ||
        complain "$writer: standard output overwrites its file"

    refuses $writer ''
    grep -q 'empty name' "$work/stderr" || complain "$writer: which name is empty?"
    refuses $writer "$d/there"
    refuses $writer "$d/nowhere/file"
    [ -z "$(find "$d" -name '*.tmp')" ] || complain "$writer: temporary files are left"
done
grep -q 'PowerNV' "$work/topo/both" || complain "topo: the text is lost"
exit $failed
