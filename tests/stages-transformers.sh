# shellcheck shell=sh disable=SC2154
# Written model folders in transformers. PYTHON is the interpreter that has it, with torch and jinja2;
# PENSTOCK_SMOLLM2 names SmolLM2's GGUF file (build-aux/model.sh gets it), which is left out without.
python=${PYTHON:-python3}
"$python" -c 'import jinja2, torch, transformers' 2>/dev/null || exit 77
writer=${PENSTOCK%/*}/tests/stages-hf-write
[ -x "$writer" ] || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
HF_HUB_OFFLINE=1 "$python" "$srcdir/tests/stages-transformers.py" "$PENSTOCK" "$writer" "$srcdir/tests" "$folder"
