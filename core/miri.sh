#!/usr/bin/env bash
# Runs gradscale-core in Miri, an interpreter that reports undefined behaviour (core has no unsafe code; half and heapless
# below it do), as a big-endian machine: all examples of the documentation, then `firmware/examples/walk.rs`, which
# calls every entry point and must print what the compiled program prints. Property tests and tests over many inputs
# do not finish in an interpreter, not even with one case.
#
#   miri.sh                 changes nothing on this machine
#   miri.sh --install       first adds Miri and the library source to the nightly toolchain
#   miri.sh --fetch         does that and nothing else
#   miri.sh --each SECONDS  also every test that finishes within that time (10 s each: a quarter of an hour), and the
#                           threads of the CPU backend
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

have_miri() { cargo +nightly miri --version >/dev/null 2>&1; }
fail() {
    echo "FAILED: $*"
    exit 1
}

seconds=
case "${1-} ${2-}" in
" ") ;;
"--install " | "--fetch ")
    # An unreachable server may not answer at all.
    have_miri || timeout 300 rustup component add --toolchain nightly miri rust-src ||
        echo "install: miri is not to be had for this nightly toolchain"
    [ "$1" = --install ] || exit 0
    ;;
"--each "[1-9]*) seconds=$2 ;;
*)
    echo "usage: miri.sh [--install | --fetch | --each SECONDS]" >&2
    exit 2
    ;;
esac

if ! have_miri; then
    echo "skipped: everything; rustup component add --toolchain nightly miri rust-src, or miri.sh --install"
    echo "SKIPPED: nothing was checked"
    exit 0
fi

# Big-endian, so that no result can depend on the order of bytes. (On x86, `libm` also takes its square root from inline
# assembly, which Miri cannot interpret.)
readonly TARGET=s390x-unknown-linux-gnu
# Floating point is an interpreter's choice in places (the bits of a NaN), but not in this run.
export MIRIFLAGS="${MIRIFLAGS--Zmiri-disable-isolation -Zmiri-deterministic-floats}"
export RUST_BACKTRACE=0
readonly MIRI=(cargo +nightly miri test --quiet --locked --target "$TARGET" -p gradscale-core)

echo "== examples of the documentation"
"${MIRI[@]}" --doc || fail "an example of the documentation"

echo "== same results as compiled"
walk=$(cd firmware && cargo run --quiet --locked --release --example walk)
interpreted=$(cd firmware && cargo +nightly miri run --quiet --locked --target "$TARGET" --example walk) ||
    fail "the walk through the entry points stopped"
diff <(echo "$walk") <(echo "$interpreted") || fail "the interpreted program prints other lines"
echo "$(wc -l <<<"$walk") lines agree"

passed=0 slow=0
if [ -n "$seconds" ]; then
    echo "== tests"
    targets=(--lib)
    for file in tests/*.rs; do
        # All 2^32 inputs would take weeks.
        [ "$file" = tests/exhaustive.rs ] || targets+=("--test=$(basename "$file" .rs)")
    done
    # Built here, so that no test's time includes it.
    "${MIRI[@]}" "${targets[@]}" --no-run || fail "the tests do not build"
    for target in "${targets[@]}"; do
        list=$("${MIRI[@]}" "$target" -- --list) || fail "the tests do not build"
        for name in $(sed -n 's/: test$//p' <<<"$list"); do
            status=0
            output=$(timeout "$seconds" "${MIRI[@]}" "$target" -- --exact "$name" 2>&1) || status=$?
            case $status in
            0) passed=$((passed + 1)) && echo "passed: $name (${target#--})" ;;
            124) slow=$((slow + 1)) && echo "too slow: $name (${target#--})" ;;
            *) echo "$output" && fail "$name (${target#--})" ;;
            esac
        done
    done
    echo "$passed tests passed, $slow did not finish within $seconds s"

    echo "== threads of the CPU backend"
    cargo +nightly miri test --quiet --locked --target "$TARGET" -p gradscale-cpu --lib parallel ||
        fail "the threads of the CPU backend"
fi
echo "PASSED: all that was run"
