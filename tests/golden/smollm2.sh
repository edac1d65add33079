# Makes tests/data/smollm2.json, what transformers computes from SmolLM2-135M-Instruct (GGUF, Q4_1). PYTHON
# needs torch, transformers, tokenizers and gguf; PENSTOCK_SMOLLM2 names the file (build-aux/model.sh gets it).
exec "${PYTHON:-python3}" "$srcdir/tests/golden/smollm2.py" \
    "${PENSTOCK_SMOLLM2:?names the GGUF file, see build-aux/model.sh}" "$srcdir/tests"
