#!/usr/bin/env bash
# Tries and measures everything on this machine's GPU: each phase a process of its own under a time limit, with a file of
# its own in `out`; none stops the next. `out/phases.txt` has a line for each: name, exit status (124: it did not end in
# time), seconds.
#
#   run.sh              all phases
#   run.sh PHASE ...    these
#
# Needs a driver; what else there is (Python with torch, compute-sanitizer, a Vulkan driver) is used.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
mkdir -p out
chosen=" $* "

phase() { # name, seconds, command
    local name=$1 limit=$2
    shift 2
    [[ "$chosen" == "  " || "$chosen" == *" $name "* ]] || return 0
    local start=$SECONDS status=0
    timeout --kill-after=10 "$limit" "$@" >"out/$name.txt" 2>&1 || status=$?
    # A phase that is run again counts once.
    [[ -f out/phases.txt ]] && sed -i "/^$name /d" out/phases.txt
    echo "$name $status $((SECONDS - start))" >>out/phases.txt
    echo "$name: status $status, $((SECONDS - start)) s"
}

environment() {
    cat commit
    date -u +%F
    uname -srm
    nvidia-smi --query-gpu=name,driver_version,power.limit,memory.total --format=csv,noheader 2>/dev/null || echo "no nvidia-smi"
    python3 -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)' 2>/dev/null || echo "no torch"
    bin/gradscale devices 2>/dev/null
}

peers() {
    python3 -c 'import torch' 2>/dev/null || { echo "no peers: no Python with torch"; return 0; }
    python3 peers.py
}

sanitizer() {
    local tool
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
    [[ -n "$tool" ]] || { echo "no compute-sanitizer here"; return 0; }
    "$tool" --tool "$1" --error-exitcode 3 bin/cuda-tests every_tile_of_every_product
}

train() {
    rm -rf out/run
    local data=()
    [[ -d data/fashion-mnist-10k ]] && data=(--data data/fashion-mnist-10k)
    bin/gradscale train --network mlp --device "$1" "${data[@]}" --iters 200 --out out/run
}
export -f environment peers sanitizer train

# Where Python brings the run-time compiler, kernels that were not compiled ahead can be compiled here.
wheel=$(python3 -c 'import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], "cu13", "lib"))' 2>/dev/null || true)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}${wheel:+:$wheel}" RUST_BACKTRACE=0 GRADSCALE_REQUIRE_DEVICE=1 GRADSCALE_CUBINS=$PWD/out/cubins

phase environment 60 bash -c environment
phase suite-without-warpgroups 240 env GRADSCALE_WARPGROUPS=0 bin/cuda-conformance
phase prove 300 bin/gradscale-cuda prove
phase tiles 180 bin/cuda-tests every_tile_of_every_product --nocapture
phase suite 240 bin/cuda-conformance
phase segnet 180 bin/cuda-tests segnet --nocapture
phase train 120 bash -c 'train cuda:0'
phase bench-products 240 bin/cuda-bench gemm conv
phase bench-elements 180 bin/cuda-bench cast norm cross-entropy update
phase bench-segnet 180 bin/cuda-bench segnet
phase peers 180 bash -c peers
phase memcheck 240 bash -c 'sanitizer memcheck'
phase racecheck 240 bash -c 'sanitizer racecheck'
phase wgpu-suite 300 bin/wgpu-conformance
phase wgpu-tiles 180 bin/wgpu-tiles
phase wgpu-bench 240 bin/wgpu-bench --bench
