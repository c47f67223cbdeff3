#!/usr/bin/env bash
# Runs gradscale-core on an emulated Cortex-M4F, and checks properties that only show there: it computes the host's
# bits, no panic is linked, and its needs of flash, RAM and instructions per element.
#
#   run.sh            uses what is present; changes nothing but the folders target/ and .cache/ here
#   run.sh --install  first fetches what is missing (packages: as root), then the same
#   run.sh --fetch    fetches and does nothing else
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED (a part is missing and with it some check).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly TARGET=thumbv7em-none-eabihf
readonly CACHE=$PWD/.cache
readonly OUT=${CARGO_TARGET_DIR:-$PWD/target}
readonly QEMU=(qemu-system-arm -M mps2-an386 -cpu cortex-m4 -nographic -semihosting-config "enable=on,target=native")
# An emulated machine that hangs must not hang the script.
readonly LIMIT=300
export RUST_BACKTRACE=0

. ./install.sh

case "${1-}" in
"") ;;
--install) install_parts ;;
--fetch) install_parts && exit 0 ;;
*)
    echo "usage: run.sh [--install | --fetch]" >&2
    exit 2
    ;;
esac

skipped=0
skip() {
    echo "skipped: $1; $2"
    skipped=$((skipped + 1))
}
fail() {
    echo "FAILED: $*"
    exit 1
}
have() { command -v "$1" >/dev/null; }

# Builds for the device with whichever compiler is there: the installed one, if it has the target, else the cached one.
# $1 is the profile.
device_cargo() {
    local profile=$1
    shift
    if have_target; then
        cargo build --quiet --locked --profile "$profile" --target "$TARGET" "$@"
    else
        local linker
        linker=$(compgen -G "$(rustc --print sysroot)/lib/rustlib/*/bin/rust-lld" || command -v ld.lld || true)
        RUSTC=$CACHE/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_THUMBV7EM_NONE_EABIHF_LINKER=${linker:-rust-lld} \
            cargo build --quiet --locked --profile "$profile" --target "$TARGET" -Zbuild-std=core "$@"
    fi
}

emulate() { timeout "$LIMIT" "${QEMU[@]}" "${@:2}" -kernel "$1" </dev/null; }

# Names of the functions of a binary.
functions() { readelf -sW "$1" | awk '$4 == "FUNC" { print $8 }'; }
# Functions that belong to a panic: the machinery in `core`, or this firmware's handler. (Their callers are listed in
# the assembly that `cargo rustc --release --target thumbv7em-none-eabihf --bin bare -- --emit asm` writes to the
# binary's folder.)
panics() { functions "$1" | awk 'tolower($0) ~ /panic|begin_unwind/'; }

# Searches a binary ($1) for panics, after a check that it contains the functions that must not panic ($2 …).
search() {
    local name all found
    all=$(functions "$1")
    for name in "${@:2}"; do
        grep -q "probes[^ ]*$name" <<<"$all" || fail "the firmware does not call probes::$name"
    done
    found=$(panics "$1")
    [ -z "$found" ] || { echo "$found" && fail "panics are linked"; }
    echo "no panic among $(wc -l <<<"$all") functions"
}

# Sum of the sizes of sections in flash ($2 = flash) or in RAM ($2 = ram).
sections() {
    local want bytes=0 name size
    case $2 in
    flash) want='^\.(vector_table|text|rodata|data|gnu\.sgstubs)$' ;;
    ram) want='^\.(data|bss|uninit)$' ;;
    esac
    while read -r name size; do
        [[ $name =~ $want ]] && bytes=$((bytes + 16#$size))
    done < <(readelf -SW "$1" | sed -n 's/^ *\[ *[0-9]*\] //p' | awk '{ print $1, $5 }')
    echo "$bytes"
}
sizes() { echo "flash $(sections "$2" flash) B, static RAM $(sections "$2" ram) B: $1"; }

if ! have cargo; then
    skip "everything" "install Rust 1.95 or newer"
elif ! have_target && ! have_pair; then
    skip "building for $TARGET and all that needs it" "rustup target add $TARGET, or run.sh --install"
fi
if [ "$skipped" != 0 ]; then
    echo "SKIPPED: nothing was checked"
    exit 0
fi
have readelf || skip "the search for panics, and sizes" "apt-get install binutils, or run.sh --install"
have qemu-system-arm ||
    skip "the comparison with the host, instruction counts, stack" "apt-get install qemu-system-arm, or run.sh --install"

for profile in release fast; do
    bin=$OUT/$TARGET/$profile
    case $profile in
    release) echo "== for size (opt-level s)" ;;
    fast) echo "== for speed (opt-level 3)" ;;
    esac
    device_cargo "$profile" --bins --features models

    if have readelf; then
        # The same firmware with an index that may be out of bounds, to see that the search finds it.
        device_cargo "$profile" --bin bare --features planted-panic
        [ -n "$(panics "$bin/bare")" ] || fail "a planted panic was not found"
        device_cargo "$profile" --bin bare
        search "$bin/bare" rescale observe store encode dither load merge send receive decide step branch
        sizes "casts, rows, exact rule, sites" "$bin/bare"
        device_cargo "$profile" --bin bare --features models
        search "$bin/bare" decide_by_models terms schedule operator
        sizes "with the paper's models, schedules, operators" "$bin/bare"
    fi

    if have qemu-system-arm; then
        cargo run --quiet --locked --release --example host >"$OUT/host.txt"
        emulate "$bin/report" >"$OUT/device.txt" || { tail -n 3 "$OUT/device.txt" && fail "the device stopped"; }
        cmp "$OUT/host.txt" "$OUT/device.txt" || { diff "$OUT/host.txt" "$OUT/device.txt" || fail "the device prints other lines"; }
        echo "same as on the host: $(wc -l <"$OUT/device.txt") lines"
        grep '^size of a light row' "$OUT/device.txt"
        # Under -icount every instruction takes 2^5 ns, most of a tick of 40 ns: no tick is lost, none counts many.
        emulate "$bin/measure" -icount shift=5,sleep=off || fail "the measurement stopped"
    fi
done

if [ "$skipped" = 0 ]; then
    echo "PASSED: all checks"
else
    echo "SKIPPED: see above; the checks that could run held"
fi
