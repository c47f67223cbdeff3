#!/usr/bin/env bash
# Tests the files for browsers, in Chromium without a window: every kernel of the wgpu backend by its compiler (Tint),
# and the page.
#
#   test.sh            the kernels as modules; what the page says where something is missing
#   test.sh --install  first fetches what is missing (node and Chromium as root; Rust's target by rustup), then the same
#   test.sh --fetch    fetches and does nothing else
#   test.sh --all      the page too, as it is built, trained on a desk and on a phone; the kernels as pipelines; trainings and
#                      the conformance suite in brief on WebGPU: minutes
#   test.sh --suite    every case of the conformance suite on WebGPU, with few inputs, and nothing else: tens of minutes
#
# CHROMIUM names another browser of that kind. The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh
readonly UNKNOWN=wasm32-unknown-unknown
export CHROMIUM=${CHROMIUM-chromium}

fetch() {
    { have_node && have "$CHROMIUM"; } || fetch_packages nodejs chromium
    fetch_library "$UNKNOWN"
}
all= suite=
case "${1-}" in
"") ;;
--all) all=1 ;;
--suite) suite=1 ;;
--install) fetch ;;
--fetch) fetch && exit 0 ;;
*)
    echo "usage: test.sh [--install | --fetch | --all | --suite]" >&2
    exit 2
    ;;
esac

scratch
have cargo || { echo "SKIPPED: nothing was checked; cargo is needed (rustup.rs)"; exit 0; }
have_node || { echo "SKIPPED: nothing was checked; node 20 or newer, or web/test.sh --install"; exit 0; }
have "$CHROMIUM" || { echo "SKIPPED: nothing was checked; apt-get install chromium, or web/test.sh --install"; exit 0; }
# Ends a command that hangs, and prints its output.
told() { timeout "${PATIENT:-900}" "$@" >"$directory/output" 2>&1 || { cat "$directory/output"; fail "$*"; }; cat "$directory/output"; }

# The conformance suite, as a module that Chromium runs on its own WebGPU.
conforms() {
    told ./module.sh conformance tested "$directory/suite"
    cp test/suite/* "$directory/suite"
    PATIENT=7200 told node test/conformance.mjs "$directory/suite" "$1"
}
if [ -n "$suite" ]; then
    have_library "$UNKNOWN" || { echo "SKIPPED: rustup target add $UNKNOWN, or web/test.sh --install"; exit 0; }
    conforms --few
    echo "PASSED: the conformance suite holds on WebGPU in Chromium"
    exit
fi

# Every kernel, as a test of the backend writes it.
mkdir "$directory/kernels"
kernels=$(../scripts/built.sh gradscale-wgpu gradscale_wgpu)
GRADSCALE_WGSL=$directory/kernels "$kernels" --quiet texts_for_browsers >/dev/null
told node test/tint.mjs "$directory/kernels"

# The page.
told node test/words.mjs
if [ -z "$all" ]; then
    told node test/page.mjs "$PWD/page" --lacking
    echo "PASSED: Tint takes every kernel; what browsers lack is said (the page itself: web/test.sh --all)"
    exit
fi
told node test/tint.mjs "$directory/kernels" --pipelines
if have_library "$UNKNOWN"; then
    told ./build.sh "$directory/site"
    told node test/page.mjs "$directory/site"
    told node test/webgpu.mjs "$directory/site"
    conforms --brief
    # Targets that the workspace's lints do not cover.
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128" \
        told cargo clippy --quiet --locked --profile tested --target "$UNKNOWN" -p gradscale-web -- -D warnings
else
    skip "the page" "rustup target add $UNKNOWN, or web/test.sh --install"
fi
verdict "Tint takes every kernel; the page trains on a desk and on a phone, and on WebGPU"
