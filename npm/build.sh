#!/usr/bin/env bash
# Builds the npm package: both WebAssembly modules, JavaScript, types, licences, in a folder that `npm publish` or
# `npm install` takes.
#
#   build.sh [FOLDER]              into FOLDER, or npm/package; prints its path
#   build.sh --vectors-alone ...   for tests: without the module for engines that have no vectors
#
# Needs cargo and its target wasm32-unknown-unknown; nothing else is installed or changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh
readonly TARGET=wasm32-unknown-unknown
have cargo || { echo "build.sh needs cargo: Rust 1.95 or newer" >&2; exit 2; }
have_library "$TARGET" || { echo "build.sh needs Rust's library for WebAssembly: rustup target add $TARGET" >&2; exit 2; }
version=$(sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -n 1)
grep -q "\"version\": \"$version\"" package.json || { echo "build.sh: package.json is not of version $version" >&2; exit 2; }
files="gradscale gradscale-simd128"
if [ "${1-}" = --vectors-alone ]; then
    files=gradscale-simd128
    shift
fi
folder=${1:-package}
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
target=$(target_folder)

# With and without vector instructions, because an engine without them cannot load a module that has them.
for file in $files; do
    flags=
    [ "$file" = gradscale ] || flags="-C target-feature=+simd128"
    CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS=$flags cargo rustc --quiet --locked --profile capi --target "$TARGET" \
        -p gradscale-npm --lib -- -C strip=symbols
    cp "$target/$TARGET/capi/gradscale_npm.wasm" "$folder/$file.wasm"
done
cp -R package.json README.md js types "$folder/"
cp ../LICENSE-APACHE ../LICENSE-MIT "$folder/"
echo "$folder"
