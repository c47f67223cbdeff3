#!/usr/bin/env bash
# All tests and benchmarks of gradscale-wgpu on a real GPU, for its figures: scripts/wgpu_gpu.sh [NUMBER OF ADAPTER]
#
# The number is that of `gradscale devices`. Tests take the first adapter, which is a hardware one if there is any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUST_BACKTRACE=0 GRADSCALE_REQUIRE_DEVICE=1 GRADSCALE_ADAPTER=${1-0}
cargo run --quiet --release --locked -p gradscale-cli --features wgpu -- devices
cargo test --release --locked -p gradscale-wgpu --tests
cargo bench --locked -p gradscale-wgpu
