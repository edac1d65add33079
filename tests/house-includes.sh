# Who may include whom: fails when a file includes what its room may not see.
# usage: house-includes.sh [TREE]; without TREE it checks the source tree, and then itself.
set -u

libc='assert|ctype|dirent|errno|fcntl|float|getopt|inttypes|limits|locale|math|poll|pthread|sched'
libc="$libc|semaphore|setjmp|signal|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string"
libc="$libc|strings|threads|time|unistd|endian|dlfcn|execinfo|malloc|wchar"
libc="($libc)\.h|(sys|linux)/[a-z_]+\.h|(immintrin|arm_neon)\.h"
cuda='(cuda|cublas|cooperative_groups|mma|cub|cuda_[a-z0-9_]*|math_constants|cublas_v2|cublasLt)(\.h|/.*)?'

# allowed FILE: the includes that this file may have, as one extended regular expression.
allowed() {
    case $1 in
    kernels/cuda.h | kernels/*.cu) echo "$libc|$cuda|config\.h|kernels/.*" ;;
    kernels/*) echo "$libc|cblas\.h|config\.h|kernels/.*" ;;
    schedules/*) echo "$libc|schedules/.*" ;;
    stages/*) echo "$libc|(jansson|pcre2|utf8proc)\.h|config\.h|(stages|kernels)/.*" ;;
    runtime/task*.c) echo "$libc|starpu[a-z_]*\.h|$rooms" ;;
    runtime/link_nccl.c) echo "$libc|nccl\.h|$rooms" ;;
    runtime/place*.c) echo "$libc|hwloc(\.h|/.*)|$rooms" ;;
    runtime/*.cu) echo "$libc|$cuda|$rooms" ;;
    runtime/*) echo "$libc|jansson\.h|$rooms" ;;
    cli/*) echo "$libc|jansson\.h|config\.h|cli/.*|schedules/.*|runtime/penstock\.h" ;;
    esac
}
rooms='config\.h|(runtime|stages|schedules|kernels)/.*'

# check TREE: prints FILE: INCLUDE for every include that is not allowed.
check() {
    (
        cd "$1" || exit
        for file in kernels/* schedules/* stages/* runtime/* cli/*; do
            case $file in *.c | *.h | *.cu) ;; *) continue ;; esac
            sed -n 's/^[ \t]*#[ \t]*include[ \t]*[<"]\([^>"]*\)[>"].*/\1/p' "$file" |
                grep -v -x -E "$(allowed "$file")" | sed "s|^|$file: may not include |"
        done
    )
}

# must_fail FILE INCLUDE: the check has to find this one line in a tree of its own.
must_fail() {
    mkdir -p "$work/${1%/*}"
    echo "#include $2" >"$work/$1"
    [ -n "$(check "$work" 2>/dev/null)" ] || faults="$faults$1: $2 was not found
"
    rm "$work/$1"
}

faults=$(check "${1:-$srcdir}" 2>/dev/null)
if [ $# -eq 0 ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    must_fail kernels/x.c '"stages/model.h"'
    must_fail kernels/x_cpu.c '<cuda_runtime.h>'
    must_fail schedules/x.c '"kernels/base.h"'
    must_fail schedules/x.c '<jansson.h>'
    must_fail stages/x.c '"runtime/penstock.h"'
    must_fail stages/x.h '<starpu.h>'
    must_fail runtime/engine.c '<starpu.h>'
    must_fail runtime/task.c '<nccl.h>'
    must_fail runtime/lane.c '<hwloc.h>'
    must_fail cli/run.c '"runtime/task.h"'
fi
[ -z "$faults" ] && exit 0
echo "$faults"
exit 1
