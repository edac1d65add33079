# Stands for the unit tests where configure found no cmocka.
echo "skipped: the unit tests need cmocka: install it, then run configure again"
exit 77
