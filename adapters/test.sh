#!/usr/bin/env bash
# Tests the adapters: their own tests and the examples of their READMEs, against the frameworks as they are released.
#
#   test.sh            all: needs cargo, and crates.io or its crates fetched before; minutes, since frameworks are built
#   test.sh burn       one of common, burn, candle, or wgpu: burn on what Vulkan finds, which is not part of all
#   test.sh --install  the same as without: crates are fetched anyway
#   test.sh --fetch    fetches the crates and does nothing else
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export RUST_BACKTRACE=0
command -v cargo >/dev/null || { echo "SKIPPED: nothing was checked; cargo is needed (rustup.rs)"; exit 0; }
host=$(rustc -vV | sed -n 's/^host: //p')

crates=(common burn candle)
case "${1-}" in
"" | --install) ;;
common | burn | candle | wgpu) crates=("$1") ;;
--fetch) cargo fetch --quiet --locked --target "$host" && exit 0 ;;
*)
    echo "usage: test.sh [common | burn | candle | wgpu | --install | --fetch]" >&2
    exit 2
    ;;
esac
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
found=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
if [ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" != "$needed" ]; then
    echo "SKIPPED: nothing was checked; Rust $needed is needed, and this is $found (rustup update)"
    exit 0
fi
# Without the registry, only crates that were fetched before are used.
if ! timeout 600 cargo fetch --quiet --locked --target "$host"; then
    export CARGO_NET_OFFLINE=true
    cargo fetch --quiet --locked --target "$host" 2>/dev/null ||
        { echo "SKIPPED: nothing was checked; crates.io is not reached (adapters/test.sh --fetch, where it is)"; exit 0; }
fi

for crate in "${crates[@]}"; do
    case $crate in
    common) what=(--package gradscale-adapters) ;;
    wgpu) what=(--package gradscale-burn --features wgpu --test burn) ;;
    *) what=(--package "gradscale-$crate") ;;
    esac
    cargo test --quiet --locked --profile tested "${what[@]}" || { echo "FAILED: $crate"; exit 1; }
done
echo "PASSED: ${crates[*]}"
