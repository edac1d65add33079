# penstock topo as a user meets it: flags, exit status, results on stdout and one line on stderr.
set -u

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
HWLOC_XMLFILE=${srcdir:?}/tests/topologies/power8-4gpu.xml
export HWLOC_XMLFILE
failed=0

# expect STATUS LINES ARGUMENT...: runs penstock topo; LINES of stderr; the output lies in $work.
expect() {
    status=$1 lines=$2
    shift 2
    "$PENSTOCK" topo "$@" >"$work/out" 2>"$work/err"
    is=$?
    if [ $is -ne "$status" ] || [ "$(wc -l <"$work/err")" -ne "$lines" ]; then
        echo "penstock topo $*: exit status $is, stderr:"
        cat "$work/err"
        failed=1
    fi
}

# shows TEXT: the last output has it.
shows() {
    grep -q -e "$1" "$work/out" && return
    echo "not printed: $1"
    failed=1
}

expect 0 0
shows 'PowerNV 8335-GTB'
shows '^  cuda:3  GPU 3, node 1$'
shows '^order of the GPUs (NVLink matrix of hwloc)$'
expect 0 0 --devices cuda:1/2,cpu:0 --svg "$work/a.svg"
shows '^  cuda:1/2.1  GPU 1, node 0$'
grep -q '</svg>' "$work/a.svg" || failed=1
expect 0 0 -h
shows '^usage: penstock topo'
expect 1 1 --devices cuda:4
expect 1 1 --devices ''
expect 1 1 --svg "$work/none/a.svg"
expect 1 1 extra
expect 1 1 --nothing
"$PENSTOCK" topo >/dev/full 2>"$work/err" && failed=1
[ "$(wc -l <"$work/err")" -eq 1 ] || failed=1
exit $failed
