# shellcheck shell=sh disable=SC2154
# Makes tests/data/tokenizers/ and tests/data/chat.json. PYTHON needs tokenizers, sentencepiece, gguf and
# transformers.
set -e
"${PYTHON:-python3}" "$srcdir/tests/golden/stages-tokenizers.py" "$srcdir/tests"
exec "${PYTHON:-python3}" "$srcdir/tests/golden/stages-chat.py" "$srcdir/tests"
