#!/usr/bin/env bash
# The tests of gradscale-wgpu on two software drivers that disagree about small numbers: lavapipe and SwiftShader.
#
#   backend-wgpu/drivers.sh            uses the drivers that are there
#   backend-wgpu/drivers.sh --install  first installs lavapipe, SwiftShader and the Vulkan loader (apt, as root)
#   backend-wgpu/drivers.sh --fetch    does that and nothing else
#   backend-wgpu/drivers.sh --all      also all 2^32 casts, all trainings, the whole suite on SwiftShader: an hour
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
export GRADSCALE_REQUIRE_DEVICE=1

# Each combination of operand types, functions and layouts is a separate shader, and compiling shaders takes most of the
# time. So there are fewer random inputs than on other devices, and different ones each time.
all= without=(--skip recorded --skip segnet)
export GRADSCALE_CASTS=sparse GRADSCALE_INPUTS=16
case "${1-}" in
"") ;;
--all)
    all=1 without=()
    unset GRADSCALE_CASTS GRADSCALE_INPUTS
    ;;
--install | --fetch)
    fetch_packages mesa-vulkan-drivers libvulkan1 chromium
    [[ "$1" == --install ]] || exit 0
    ;;
*)
    echo "usage: backend-wgpu/drivers.sh [--install | --fetch | --all]" >&2
    exit 2
    ;;
esac

conformance=$(scripts/built.sh gradscale-wgpu conformance)
tiles=$(scripts/built.sh gradscale-wgpu tiles)
library=$(scripts/built.sh gradscale-wgpu gradscale_wgpu)
training=$(scripts/built.sh gradscale-wgpu training)
tasks=$(scripts/built.sh gradscale-wgpu tasks)

# Families of cases that test nothing specific to SwiftShader. Its differences (small numbers, subgroups of four, no
# f16) affect casts, tables, stores, functions, sums and updates; tiles test its products: every tile, each with some of the
# layouts and passes, and the largest with all of them.
readonly ALIKE=(attention binary conv copy gemm norm norm_vjp pool reduce rows unpool cross_entropy cross_entropy_vjp)

# Runs a part, and prints its time.
timed() {
    local name=$1 before=$SECONDS
    shift
    "$@" || fail "$name"
    echo "-- $name: $((SECONDS - before)) s"
}

# Runs everything on one driver. Most of the time is the compilation of shaders, for any inputs: SwiftShader takes
# minutes.
on() {
    export VK_DRIVER_FILES=$1
    local brief_tasks=1
    [[ -z "$all" ]] || brief_tasks=0
    printf -- '-- %s\n' "$1"
    if [[ -n "$all" || "$1" == *lvp* ]]; then
        timed "the suite on $1" "$conformance"
        timed "training on $1" "$training" --nocapture ${without[@]+"${without[@]}"}
        GRADSCALE_BRIEF=${brief_tasks} timed "tasks on $1" "$tasks" --nocapture
    else
        export GRADSCALE_BRIEF=1
        timed "the suite on $1" "$conformance" $(printf -- '--skip wgpu::%s:: ' "${ALIKE[@]}")
    fi
    timed "tiles on $1" "$tiles" --nocapture
}

# Simulates small bindings and missing subgroups. Larger tensors then need several bindings, of which a driver must
# support many. One module generates the access of all kernels to tensors, so one family for each kind of access
# suffices: elements, rows, sums, products, updates. One case draws sizes that are too large for that.
readonly SEEN_ALIKE=(attention:: attention_vjp:: binary:: conv:: norm_vjp:: pool:: rows:: sum:: table:: unary:: unpool:: cross_entropy:: cross_entropy_vjp::
    gemm::cubes gemm::tile gemm::types gemm::zero optimize::many)
small() {
    export VK_DRIVER_FILES=$1 GRADSCALE_BINDING=262144 GRADSCALE_BRIEF=1 GRADSCALE_CASTS=sparse
    local skip=(--skip reduce::any_shape)
    [[ -n "$all" ]] || skip+=($(printf -- '--skip wgpu::%s ' "${SEEN_ALIKE[@]}"))
    timed "small bindings on $1" "$conformance" "${skip[@]}"
}

# Compiles the products for a GPU that is not there and counts instructions, which takes 2 s. Mesa's RADV has such a
# device; its name for RDNA 3 changed after 22.3.
readonly RADV=/usr/share/vulkan/icd.d/radeon_icd.x86_64.json
instructions() {
    export VK_DRIVER_FILES=$RADV MESA_SHADER_CACHE_DISABLE=true
    local family
    for family in gfx1100 navi31; do
        if RADV_FORCE_FAMILY=$family "$library" --exact kernel::instructions::a_null_device_is_there >/dev/null 2>&1; then
            RADV_FORCE_FAMILY=$family timed "instructions on RADV's null device" "$library" --nocapture --exact \
                kernel::instructions::products_stay_within_their_budget_of_instructions \
                kernel::instructions::cooperative_products_stay_within_their_budget_of_instructions \
                kernel::instructions::elementwise_loops_stay_within_their_budget_of_instructions \
                kernel::instructions::attention_stays_within_its_budget_of_instructions
            return
        fi
    done
    echo "skipped: instructions; this Mesa has no null device for RDNA 3"
}

# Compiling kernels takes most of the time, on one thread, so the drivers run in parallel.
scratch
passed=()
running=()
start() {
    passed+=("$1")
    (shift && "$@") >"$directory/$1" 2>&1 &
    running+=($!)
}
for driver in /usr/share/vulkan/icd.d/lvp_icd.*.json /usr/lib/chromium/vk_swiftshader_icd.json; do
    [[ -f "$driver" ]] || continue
    start "$(basename "$driver")" on "$driver"
    if [[ "$driver" == *lvp* ]]; then
        start "$(basename "$driver") with small bindings" small "$driver"
    fi
done
if [[ -f "$RADV" ]]; then
    start "instructions" instructions
else
    echo "skipped: instructions; there is no RADV: apt-get install mesa-vulkan-drivers"
fi
failed=()
for i in ${running[@]+"${!running[@]}"}; do
    wait "${running[$i]}" || failed+=("${passed[$i]}")
    cat "$directory/${passed[$i]}"
done
if ((${#passed[@]} == 0)); then
    echo "skipped: everything; apt-get install mesa-vulkan-drivers libvulkan1 chromium, or drivers.sh --install"
    echo "SKIPPED: no software driver"
elif ((${#failed[@]} != 0)); then
    fail "${failed[*]}"
else
    echo "PASSED: ${passed[*]}"
fi
