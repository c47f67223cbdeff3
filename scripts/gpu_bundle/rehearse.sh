#!/usr/bin/env bash
# Rehearses a bundle without a GPU: CUDA on the emulated driver, wgpu on lavapipe, PyTorch on the CPU.
#
#   scripts/gpu_bundle/rehearse.sh FOLDER [PHASE ...]
#
# FOLDER was built by `scripts/gpu_bundle.py FOLDER --quick`. The results are in FOLDER/out, and the resulting record
# and page in FOLDER/records and FOLDER/gpu.md. Exit status 1 if a phase ended with neither its result nor a report of
# missing requirements.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
[[ -x "${1-}/run.sh" ]] || { echo "usage: scripts/gpu_bundle/rehearse.sh FOLDER [PHASE ...]" >&2 && exit 2; }
folder=$(cd "$1" && pwd)
shift
cd "$root"
cargo build --locked --quiet --profile tested -p gradscale-emulated-cuda -p gradscale-emulated-nvrtc -p gradscale-emulated-nccl
libraries=$folder/emulated
rm -rf "$libraries" "$folder/out" && mkdir -p "$libraries" target/tested/deps/emulated
for pair in cuda:libcuda.so nvrtc:libnvrtc.so nccl:libnccl.so.2; do
    cp "target/tested/libgradscale_emulated_${pair%%:*}.so" "$libraries/${pair#*:}"
done
# Kernels that the tests have compiled as C++ are found there. From nothing a kernel takes several seconds.
ln -s "$root/target/tested/deps/emulated" "$libraries/emulated"
# Machine code of a real device is of no use to the emulated one.
[[ ! -d "$folder/bin/cubins" ]] || mv "$folder/bin/cubins" "$folder/cubins"
trap '[[ ! -d "$folder/cubins" ]] || mv "$folder/cubins" "$folder/bin/cubins"' EXIT
[[ ! -x target/python-package/bin/python3 ]] || export PATH="$root/target/python-package/bin:$PATH"
export LD_LIBRARY_PATH=$libraries GRADSCALE_EMULATED_CUDA=${GRADSCALE_EMULATED_CUDA-90x2}
export VK_DRIVER_FILES=${VK_DRIVER_FILES-/usr/share/vulkan/icd.d/lvp_icd.x86_64.json}
# An emulated device is slow, so the limits of a card do not apply. The longest phase, wgpu-suite, took
# 474 s on a core of its own and 636 s on a shared one.
export GRADSCALE_PHASE_SECONDS=${GRADSCALE_PHASE_SECONDS-1200} GRADSCALE_CASTS=sparse GRADSCALE_INPUTS=4
"$folder/run.sh" --rehearse "$@"
scripts/gpu_bundle/record.py "$folder/out" --records "$folder/records" --page "$folder/gpu.md"
if failed=$(grep -E ',(FAILED|time limit)' "$folder/records/phases.csv"); then
    echo "$failed"
    exit 1
fi
