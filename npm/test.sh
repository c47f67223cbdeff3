#!/usr/bin/env bash
# Tests the npm package as users have it, packed and installed; its types; and the CPU backend's kernels and the whole
# conformance suite on WebAssembly, under node.
#
#   test.sh            uses what is present; changes nothing but the target folder
#   test.sh --install  first fetches what is missing (node as root; Rust's targets by rustup; TypeScript into the target
#                      folder), then the same
#   test.sh --fetch    fetches and does nothing else
#   test.sh --all      without vectors too, and the suite with all inputs
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED (a part is missing and with it some check).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh

readonly UNKNOWN=wasm32-unknown-unknown WASI=wasm32-wasip1 TYPESCRIPT=typescript@5.9.3
LIMIT=900
have cargo || { echo "SKIPPED: nothing was checked; cargo is needed (rustup.rs)"; exit 0; }
tools=$(target_folder)/npm-tools

fetch() {
    { have_node && have npm; } || fetch_packages nodejs npm
    fetch_library "$UNKNOWN"
    fetch_library "$WASI"
    if have npm && [ ! -x "$tools/node_modules/.bin/tsc" ]; then
        mkdir -p "$tools"
        timeout "$PATIENCE" npm install --silent --no-audit --no-fund --prefix "$tools" "$TYPESCRIPT" ||
            echo "install: not to be had: $TYPESCRIPT"
    fi
}
all=
case "${1-}" in
"") ;;
--all) all=1 LIMIT=36000 ;;
--install) fetch ;;
--fetch) fetch && exit 0 ;;
*)
    echo "usage: test.sh [--install | --fetch | --all]" >&2
    exit 2
    ;;
esac

scratch
have_node && have npm || { echo "SKIPPED: nothing was checked; node 20 or newer with npm, or npm/test.sh --install"; exit 0; }
quiet() { timeout "$LIMIT" "$@" >"$directory/output" 2>&1 || { cat "$directory/output"; fail "$*"; }; }

# The types are those of the sources, which agree with them.
tsc=$tools/node_modules/.bin/tsc
if [ -x "$tsc" ]; then
    quiet "$tsc" --project . --outDir "$directory/types"
    diff -r "$directory/types" types || fail "types/ is not that of js/: npm/types.sh writes it"
else
    skip "the types" "npm/test.sh --install fetches TypeScript"
fi

# The package, packed and installed.
if have_library "$UNKNOWN"; then
    files=gradscale-simd128 only=--vectors-alone
    [ -z "$all" ] || files="gradscale-simd128 gradscale" only=
    quiet ./build.sh $only "$directory/package"
    (cd "$directory" && quiet npm pack --silent ./package)
    mkdir "$directory/user"
    echo '{ "type": "module" }' >"$directory/user/package.json"
    quiet npm install --silent --offline --no-audit --no-fund --prefix "$directory/user" "$directory"/gradscale-*.tgz
    cp test/*.mjs test/*.mts ../capi/tests/rows.txt "$directory/user/"
    # The README's example, unchanged.
    sed -n '/^```js$/,/^```$/p' README.md | sed '/^```/d' >"$directory/user/readme.mjs"
    cd "$directory/user"
    quiet node readme.mjs
    cat "$directory/output"
    for file in $files; do
        export GRADSCALE_MODULE=$file
        quiet node --test package.test.mjs
        tests=$(sed -n 's/^# pass //p' "$directory/output")
        quiet node rows.mjs
        diff "$directory/output" rows.txt || fail "$file and C differ"
        echo "$file: $(stat -c %s "node_modules/gradscale/$file.wasm") bytes, $tests tests, $(cat rows.txt)"
    done
    unset GRADSCALE_MODULE
    if [ -n "$all" ] && have chromium; then
        quiet node browser.mjs
        cat "$directory/output"
    elif [ -n "$all" ]; then
        skip "a browser" "apt-get install chromium"
    fi
    if [ -x "$tsc" ]; then
        quiet "$tsc" --noEmit --strict --target es2022 --module nodenext types.test.mts
    fi
    cd - >/dev/null
else
    skip "the package" "rustup target add $UNKNOWN, or npm/test.sh --install"
fi

# Targets that the workspace's lints do not cover.
if [ -n "$all" ] && have_library "$UNKNOWN"; then
    for flags in "" "-C target-feature=+simd128"; do
        export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS=$flags
        quiet cargo clippy --quiet --locked --profile tested --target "$UNKNOWN" -p gradscale-npm -p gradscale-cpu -- -D warnings
    done
fi

# The kernels and the suite, as programs of WASI, which have arguments and an output. A build with vectors has the
# portable kernels and those of SIMD128; --all tests a build without vectors too.
suite() {
    local flags=$1 sets=$2 cases
    export CARGO_TARGET_WASM32_WASIP1_RUSTFLAGS=$flags
    program() {
        cargo test --quiet --locked --profile tested --target "$WASI" -p gradscale-cpu "$@" --no-run --message-format=json |
            sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
    }
    quiet node --no-warnings test/wasi.mjs "$(program --lib)" --nocapture --skip math
    timeout "$LIMIT" node --no-warnings test/wasi.mjs "$(program --test conformance)" >"$directory/suite" 2>&1 ||
        { grep -v 'ok$' "$directory/suite"; fail "the suite on $sets"; }
    local found
    found=$(sed -n 's/^device: CPU, \(.*\), 1 threads$/\1/p' "$directory/suite" | paste -sd,)
    [ "$found" = "$sets" ] || fail "the suite ran on $found, not $sets"
    cases=$(sed -n 's/^pairs of a device and a case that ran: //p' "$directory/suite")
    [ "$cases" -gt 0 ] || fail "no case ran on $sets"
    echo "$sets: $cases pairs of an instruction set and a case"
}
if have_library "$WASI"; then
    [ -n "$all" ] || export GRADSCALE_BRIEF=1
    suite "-C target-feature=+simd128" portable,SIMD128
    [ -z "$all" ] || suite "" portable
else
    skip "the kernels and the suite" "rustup target add $WASI, or npm/test.sh --install"
fi

verdict "the package with the bits of C; the suite on WebAssembly"
