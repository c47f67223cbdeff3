#!/usr/bin/env bash
# Tests everything that this machine can test.
#
#   ./test.sh            changes nothing on the machine; says what it left out, and how to get it
#   ./test.sh --install  first installs what can be had (packages: as root), then the same
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export RUST_BACKTRACE=0

case "${1-}" in
"" | --install) install=("$@") ;;
*)
    echo "usage: ./test.sh [--install]" >&2
    exit 2
    ;;
esac

step() { printf '\n== %s\n' "$*"; }

step format
cargo fmt --all --check
step lints
cargo clippy --quiet --workspace --all-targets --release --locked -- -D warnings
cargo clippy --quiet -p gradscale-cli --features wgpu,cuda --release --locked -- -D warnings
step documentation
RUSTDOCFLAGS=-Dwarnings cargo doc --quiet --workspace --no-deps --locked
step "the engine without a backend"
cargo check --quiet --release --locked -p gradscale --no-default-features --lib
step tests
# Tests print what they have counted. Those of wgpu that need a driver find none here, and run below.
VK_DRIVER_FILES=/dev/null scripts/tests.py
step "a backend of somebody else's"
"$(scripts/built.sh gradscale-conformance third_party)" --quiet --skip all_f32_down

# Each of these says itself what it could not do; its last line starts with PASSED, FAILED or SKIPPED.
summary=()
part() {
    local name=$1 log status=0
    shift
    step "$name"
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" || status=$?
    summary+=("$name: $(tail -n 1 "$log")")
    rm -f "$log"
    return "$status"
}
part "bare metal" core/firmware/run.sh ${install[@]+"${install[@]}"}
part "wgpu" backend-wgpu/drivers.sh ${install[@]+"${install[@]}"}
part "TensorBoard" cli/tests/tensorboard/run.sh ${install[@]+"${install[@]}"}
part "emulated processors" backend-cpu/emulated.sh ${install[@]+"${install[@]}"}
part "Miri" core/miri.sh ${install[@]+"${install[@]}"}

part "CUDA kernels" backend-cuda/kernels.sh ${install[@]+"${install[@]}"}

step summary
echo "format, lints, documentation, tests: PASSED"
if [[ -n "${GRADSCALE_DATA-}" ]]; then
    echo "tests on real data: PASSED"
else
    echo "tests on real data: SKIPPED (set GRADSCALE_DATA to a directory with camvid-90x120 and fashion-mnist-10k)"
fi
printf '%s\n' "${summary[@]}"
