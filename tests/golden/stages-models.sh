# Makes the files of tests/data that tests of models and of their files compare with. PYTHON needs torch,
# transformers, gguf and safetensors.
exec "${PYTHON:-python3}" "$srcdir/tests/golden/stages-models.py" "$srcdir/tests"
