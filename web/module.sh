#!/usr/bin/env bash
# Builds the module that uses WebGPU, with the JavaScript that it is called through.
#
#   module.sh FEATURE PROFILE FOLDER    FEATURE: webgpu, or conformance (the suite too)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/shared.sh"
feature=$1 profile=$2 folder=$3
readonly TARGET=wasm32-unknown-unknown
target=$(target_folder)
CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C target-feature=+simd128" \
    cargo rustc --quiet --locked --profile "$profile" --target "$TARGET" -p gradscale-web --features "$feature" \
    --lib --crate-type cdylib
mkdir -p "$folder"
cargo run --quiet --locked --profile tested -p gradscale-web-bindgen -- \
    "$target/$TARGET/$profile/gradscale_web.wasm" "$folder"
