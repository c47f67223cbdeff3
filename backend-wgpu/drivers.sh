#!/usr/bin/env bash
# The tests of gradscale-wgpu on two software drivers that disagree about small numbers: lavapipe and SwiftShader.
#
#   backend-wgpu/drivers.sh            uses the drivers that are there
#   backend-wgpu/drivers.sh --install  first installs lavapipe, SwiftShader and the Vulkan loader (apt, as root)
#   backend-wgpu/drivers.sh --all      also all 2^32 casts, and all trainings on both drivers, which takes an hour
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUST_BACKTRACE=0 GRADSCALE_REQUIRE_DEVICE=1

fail() {
    echo "FAILED: $*"
    exit 1
}

all=(--skip all_f32_down)
case "${1-}" in
"") ;;
--all) all=() ;;
--install)
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends mesa-vulkan-drivers libvulkan1 chromium; } \
        >/dev/null || echo "install: the drivers are not to be had"
    ;;
*)
    echo "usage: backend-wgpu/drivers.sh [--install | --all]" >&2
    exit 2
    ;;
esac

conformance=$(scripts/built.sh gradscale-wgpu conformance)
tiles=$(scripts/built.sh gradscale-wgpu tiles)
training=$(scripts/built.sh gradscale-wgpu training)

# Everything on one driver. Trainings take minutes each, on SwiftShader many.
on() {
    export VK_DRIVER_FILES=$1
    printf -- '-- %s\n' "$1"
    "$conformance" ${all[@]+"${all[@]}"} || fail "the suite on $1"
    "$tiles" --nocapture || fail "tiles on $1"
    if ((${#all[@]} == 0)); then
        "$training" --nocapture || fail "training on $1"
    elif [[ "$1" == *lvp* ]]; then
        "$training" --nocapture --skip recorded || fail "training on $1"
    fi
}

# The suite as if bindings were small and there were no subgroups: larger tensors are seen through several bindings, of
# which a driver must have many. One case draws sizes that are too large for that.
small() {
    export VK_DRIVER_FILES=$1
    GRADSCALE_BINDING=262144 GRADSCALE_BRIEF=1 "$conformance" --skip all_f32_down --skip reduce::any_shape ||
        fail "small bindings on $1"
}

# Compiling kernels is what takes longest, on one thread: the drivers run side by side.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed=()
running=()
start() {
    passed+=("$1")
    (shift && "$@") >"$logs/$1" 2>&1 &
    running+=($!)
}
for driver in /usr/share/vulkan/icd.d/lvp_icd.*.json /usr/lib/chromium/vk_swiftshader_icd.json; do
    [[ -f "$driver" ]] || continue
    start "$(basename "$driver")" on "$driver"
    if [[ "$driver" == *lvp* ]]; then
        start "$(basename "$driver") with small bindings" small "$driver"
    fi
done
failed=()
for i in ${running[@]+"${!running[@]}"}; do
    wait "${running[$i]}" || failed+=("${passed[$i]}")
    cat "$logs/${passed[$i]}"
done
if ((${#passed[@]} == 0)); then
    echo "skipped: everything; apt-get install mesa-vulkan-drivers libvulkan1 chromium, or drivers.sh --install"
    echo "SKIPPED: no software driver"
elif ((${#failed[@]} != 0)); then
    fail "${failed[*]}"
else
    echo "PASSED: ${passed[*]}"
fi
