# shellcheck shell=sh disable=SC2154
# Plans in PyTorch's pipelining and back. PYTHON is the interpreter that has torch.
python=${PYTHON:-python3}
"$python" -c 'import torch.distributed.pipelining' 2>/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$srcdir/tests/schedules-pytorch.py" "$PENSTOCK" "$folder"
