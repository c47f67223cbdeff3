#!/usr/bin/env bash
# Tests the program that `cargo run` builds in this repository, which leaves out the parts that take long to compile.
#
#   scripts/starter.sh        it has none of these parts' dependencies, and `cargo install --path cli` has all of them
#   scripts/starter.sh --all  builds it as well: its size, and one line for each task that it refuses
#
# The last line starts with PASSED or FAILED (exit status 1).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/shared.sh
source scripts/shared.sh
[[ "${1-}" != --fetch ]] || exit 0

# Largest size of the program in bytes. Line tables alone once made it five times as large.
MAX_BYTES=20000000

# Each part, which is a default feature, with the crate that it needs.
parts=$(cargo metadata --format-version 1 --no-deps --locked | python3 -c '
import json, sys
features = {package["name"]: package["features"] for package in json.load(sys.stdin)["packages"]}
def crates(package, part):
    for needed in features[package][part]:
        if "/" in needed:
            yield from crates(*needed.split("/"))
        else:
            yield needed.removeprefix("dep:")
for part in features["gradscale-cli"]["default"]:
    for crate in crates("gradscale-cli", part):
        print(part, crate)
')
[ -n "$parts" ] || fail "gradscale-cli has no parts that can be left out"
dependencies() { cargo tree --locked --quiet --edges normal --prefix none --format '{lib}' --package "$1"; }
starter=$(dependencies gradscale-starter)
whole=$(dependencies gradscale-cli)
while read -r part crate; do
    grep -qx "$crate" <<<"$whole" || fail "the whole program lacks $crate, of the part $part"
    ! grep -qx "$crate" <<<"$starter" || fail "the starter has $crate, of the part $part"
done <<<"$parts"
ran="the starter has none of the parts of $(cut -d ' ' -f 2 <<<"$parts" | paste -sd ' '), the whole program all"
if [[ "${1-}" != --all ]]; then
    verdict "$ran"
    exit
fi

cargo build --locked --quiet --release --package gradscale-starter || fail "the starter does not build"
program=$(target_folder)/release/gradscale-starter
bytes=$(stat --format %s "$program")
[ "$bytes" -le "$MAX_BYTES" ] || fail "the program has $bytes bytes, more than $MAX_BYTES"
scratch
while read -r part; do
    task=$("$program" train --help | grep -oE '(generate|speech|translate):' | tr -d : | sort -u | grep "^${part:0:4}") || fail "no task of $part"
    code=0
    error=$("$program" train --task "$task" --iters 1 --out "$directory/$task" 2>&1 >/dev/null) || code=$?
    [ "$code" = 2 ] || fail "$task: exit code $code instead of 2"
    [[ "$error" == "gradscale: $part is left out of this build"*"(feature $part)" && "$error" != *$'\n'* ]] || fail "$task: $error"
    [ ! -e "$directory/$task" ] || fail "$task: a directory of a training that was refused"
done <<<"$(cut -d ' ' -f 1 <<<"$parts" | sort -u)"
verdict "$ran; it has $bytes bytes, and refuses them in one line each"
