#!/usr/bin/env bash
# Compiles every kernel for every architecture with NVIDIA's run-time compiler, which needs no GPU, and refuses spills.
#
#   kernels.sh             uses the compiler of GRADSCALE_NVRTC, or of Python's package nvidia-cuda-nvrtc
#   kernels.sh --install   gets that package from PyPI into a temporary directory where there is none
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export RUST_BACKTRACE=0

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
compile() { "$(../scripts/built.sh gradscale-cuda compile)" --nocapture 2>&1; }

case "${1-}" in
"") ;;
--install)
    if [[ -z "${GRADSCALE_NVRTC-}" ]]; then
        if timeout 300 python3 -m venv "$directory/python" &&
            timeout 300 "$directory/python/bin/pip" install --quiet --no-deps nvidia-cuda-nvrtc==13.0.88; then
            libraries=("$directory"/python/lib/python3*/site-packages/nvidia/cu13/lib)
            export GRADSCALE_NVRTC=${libraries[0]}
        else
            echo "install: nvidia-cuda-nvrtc is not to be had"
        fi
    fi
    ;;
*)
    echo "usage: kernels.sh [--install]" >&2
    exit 2
    ;;
esac

if ! log=$(compile); then
    printf '%s\n' "$log" "FAILED: a kernel does not compile, or spills"
    exit 1
fi
if skipped=$(grep SKIPPED <<<"$log"); then
    printf '%s\nSKIPPED: nothing was compiled; pip install nvidia-cuda-nvrtc==13.0.88, or kernels.sh --install\n' "$skipped"
    exit 0
fi
echo "PASSED: $(grep -c ',0,0$' <<<"$log") pairs of a kernel and an architecture, without spills"
