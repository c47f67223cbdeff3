#!/usr/bin/env bash
# Builds the page: static files in a folder that any server of files can show.
#
#   build.sh [FOLDER]        into FOLDER, or web/site; prints its path
#
# Needs cargo and its target wasm32-unknown-unknown; nothing else is installed or changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh
readonly TARGET=wasm32-unknown-unknown
have cargo || { echo "build.sh needs cargo: Rust 1.95 or newer" >&2; exit 2; }
have_library "$TARGET" || { echo "build.sh needs Rust's library for WebAssembly: rustup target add $TARGET" >&2; exit 2; }
folder=${1:-site}
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
target=$(target_folder)

# Every browser that the page is for has vectors.
CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128" \
    cargo rustc --quiet --locked --profile capi --target "$TARGET" -p gradscale-web --lib --crate-type cdylib \
    -- -C strip=symbols
cp "$target/$TARGET/capi/gradscale_web.wasm" "$folder/"
# The same on WebGPU, where a browser has it: another module, with the JavaScript that holds the GPU's objects.
./module.sh webgpu capi "$folder/webgpu"
cp page/* "$folder/"
# The page links to project and guide. In the site these links lead to its pages (scripts/site.py), alone to these texts.
# They begin with a byte order mark, because servers of files do not name the encoding of a text.
{ printf '\xef\xbb\xbf'; cat ../README.md; } >"$folder/project.txt"
{ printf '\xef\xbb\xbf'; cat ../docs/guide/method.md; } >"$folder/guide.txt"
echo "$folder"
