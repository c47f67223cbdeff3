#!/usr/bin/env bash
# Compiles kernels for every architecture with NVIDIA's run-time compiler, which needs no GPU, and refuses spills. The
# assembler's figures of the last compilation are in kernels.csv; tests compare kernels with that record.
#
#   kernels.sh            compiles what has changed since, and writes the record
#   kernels.sh --all      compiles everything afresh and expects the record's numbers
#
# The compiler is that of GRADSCALE_NVRTC (the folder of libnvrtc.so.13), or of Python's package nvidia-cuda-nvrtc,
# which is fetched from PyPI into target/nvrtc if it is not installed. The last line starts with PASSED or FAILED (exit
# status 1).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export RUST_BACKTRACE=0

case "${1-}" in
"") export GRADSCALE_KERNELS=write ;;
--all) export GRADSCALE_KERNELS=all ;;
*)
    echo "usage: kernels.sh [--all]" >&2
    exit 2
    ;;
esac
GRADSCALE_NVRTC=$(../scripts/nvidia.py)
export GRADSCALE_NVRTC
if ! "$(../scripts/built.sh gradscale-cuda compile)" --nocapture every_kernel_on_every_architecture; then
    echo "FAILED: a kernel does not compile, spills, or is not what the record says"
    exit 1
fi
echo "PASSED: the record is of these kernels"
