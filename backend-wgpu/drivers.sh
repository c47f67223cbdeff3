#!/usr/bin/env bash
# The tests of gradscale-wgpu on two software drivers that disagree about small numbers: lavapipe and SwiftShader.
#
#   backend-wgpu/drivers.sh            uses the drivers that are there
#   backend-wgpu/drivers.sh --install  first installs lavapipe and the Vulkan loader (apt, as root)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export RUST_BACKTRACE=0 GRADSCALE_REQUIRE_DEVICE=1

case "${1-}" in
"") ;;
--install) apt-get update -qq && apt-get install -y -qq --no-install-recommends mesa-vulkan-drivers libvulkan1 chromium ;;
*)
    echo "usage: backend-wgpu/drivers.sh [--install]" >&2
    exit 2
    ;;
esac

passed=()
for driver in /usr/share/vulkan/icd.d/lvp_icd.*.json /usr/lib/chromium/vk_swiftshader_icd.json; do
    [[ -f "$driver" ]] || continue
    printf -- '-- %s\n' "$driver"
    VK_DRIVER_FILES=$driver cargo test --release --locked -p gradscale-wgpu --tests -- --nocapture
    passed+=("$(basename "$driver")")
done
if ((${#passed[@]} == 0)); then
    echo "SKIPPED: no software driver; --install gets two"
else
    echo "PASSED: ${passed[*]}"
fi
