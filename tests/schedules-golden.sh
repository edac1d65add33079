# shellcheck shell=sh disable=SC2154
# The plans and pictures that are made now are those of tests/plans, and each plan passes
# the check.
plans=$(mktemp -d)
trap 'rm -rf "$plans"' EXIT
PLANS=$plans sh "$srcdir/tests/golden/schedules.sh" || exit 1
diff -r "$srcdir/tests/plans" "$plans" || exit 1
for plan in "$plans"/*.csv; do
    "$PENSTOCK" schedule check "$plan" >/dev/null || exit 1
done
