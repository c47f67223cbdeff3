#!/usr/bin/env bash
# Tries and measures everything on this machine's GPU: each phase a process of its own under a time limit, with a file of
# its own in `out`; none stops the next. `out/phases.txt` has a line for each: name, exit status (124: it did not end in
# time), seconds.
#
#   run.sh                   all phases, the most telling first
#   run.sh PHASE ...         these
#   run.sh --within SECONDS  those that have not been run yet, as many as surely end in time: where a command may take
#                            ten minutes, `run.sh --within 570` again and again
#   run.sh --plan            the phases, how long each may take and when it would end at the latest
#   run.sh --rehearse        benches in small sizes, and nothing that an emulated driver would take hours for
#
# GRADSCALE_PHASE_SECONDS is the limit of every phase in place of its own.
#
# Needs a driver and bash with coreutils, grep and sed; what else there is (Python with torch, NCCL, compute-sanitizer, a
# Vulkan driver) is used. `scripts/gpu_box/read.py` makes a page of `out`.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
plan=0 within=0 planned=0
small=()
case "${1-}" in
--plan) plan=1 && shift ;;
--rehearse) small=(--small) && shift ;;
--within)
    within=${2-0}
    [[ "$within" =~ ^[1-9][0-9]*$ ]] || { echo "usage: run.sh --within SECONDS" >&2 && exit 2; }
    shift 2
    ;;
--*) sed -n '/^#   run.sh/s/^#   //p' run.sh >&2 && exit 2 ;;
esac
known=" environment prove tiles suite-without-warpgroups suite segnet bench-products bench-elements bench-segnet peers train
 nccl memcheck tasks racecheck wgpu-suite wgpu-tiles wgpu-bench "
for name in "$@"; do
    [[ "${known//$'\n'/}" == *" $name "* ]] || { echo "$name is no phase; they are:${known//$'\n'/}" >&2 && exit 2; }
done
chosen=" $* "

phase() { # name, seconds, command
    local name=$1 limit=${GRADSCALE_PHASE_SECONDS-$2}
    shift 2
    [[ "$chosen" == "  " || "$chosen" == *" $name "* ]] || return 0
    planned=$((planned + limit))
    if ((plan)); then
        echo "$name: at most $limit s, ends by $((planned / 60)):$(printf %02d $((planned % 60)))"
        return 0
    fi
    if ((within)); then
        [[ -f out/phases.txt ]] && grep -q "^$name " out/phases.txt && return 0
        # Nothing behind this one runs before it.
        ((SECONDS + limit + 10 <= within)) || { within=1 && return 0; }
    fi
    mkdir -p out
    local start=$SECONDS status=0
    timeout --kill-after=10 "$limit" "$@" >"out/$name.txt" 2>&1 </dev/null || status=$?
    # A phase that is run again counts once.
    [[ -f out/phases.txt ]] && sed -i "/^$name /d" out/phases.txt
    echo "$name $status $((SECONDS - start))" >>out/phases.txt
    echo "$name: status $status, $((SECONDS - start)) s"
}

environment() {
    cat commit
    date -u +%F
    uname -sm
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=name,driver_version,power.limit,clocks.max.sm,memory.total --format=csv,noheader
    else
        echo "no nvidia-smi"
    fi
    python3 -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda)' 2>/dev/null || echo "no torch"
    for tool in ncu compute-sanitizer; do command -v "$tool" >/dev/null && echo "$tool"; done
    bin/gradscale devices
}

peers() {
    command -v python3 >/dev/null || { echo "no peers: no Python" && return 0; }
    python3 -c 'import torch' 2>/dev/null || { echo "no peers: no Python with torch" && return 0; }
    python3 peers.py
}

sanitizer() { # tool
    local tool
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
    [[ -n "$tool" ]] || { echo "no compute-sanitizer here" && return 0; }
    "$tool" --tool "$1" --error-exitcode 3 bin/cuda-tests every_tile_of_every_product
}

# The suite in parts that run side by side: a driver that compiles kernels keeps one processor busy.
suite() { # program
    local name status=0 skipped=() running=()
    # Also when time is over: then it says how far each part came.
    trap 'cat out/part-* 2>/dev/null && rm -f out/part-*; exit 143' TERM
    for name in conv unary norm all_f32_down; do
        "$1" "$name" >"out/part-$name" 2>&1 &
        running+=($!) skipped+=(--skip "$name")
    done
    "$1" "${skipped[@]}" >out/part-others 2>&1 &
    for name in "${running[@]}" $!; do wait "$name" || status=$?; done
    cat out/part-* && rm out/part-*
    return "$status"
}

train() { # device
    rm -rf out/run
    local data=()
    [[ -d data/fashion-mnist-10k ]] && data=(--data data/fashion-mnist-10k)
    bin/gradscale train --network mlp --device "$1" "${data[@]}" --iters 200 --out out/run
}
export -f environment peers sanitizer suite train

# Where Python brings the run-time compiler and cuBLASLt, kernels that were not compiled ahead can be compiled here; and
# NCCL, which lies beside them.
wheels=$(python3 -c 'import nvidia, os; at = list(nvidia.__path__)[0]; print(f"{at}/cu13/lib:{at}/nccl/lib")' 2>/dev/null || true)
# The loader of Vulkan comes along, with what NVIDIA's Vulkan driver is linked to; a driver's own files may lie beside the
# driver alone.
for driver in /usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json; do
    [[ -f "$driver" && -z "${VK_DRIVER_FILES-}" && ! -d /usr/share/vulkan/icd.d ]] && export VK_DRIVER_FILES=$driver
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}${wheels:+:$wheels}:$PWD/lib"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH#:}" RUST_BACKTRACE=0 GRADSCALE_REQUIRE_DEVICE=1
export GRADSCALE_CUBINS=$PWD/out/cubins

phase environment 30 bash -c environment
phase prove 180 env GRADSCALE_PROVE_SECONDS=20 bin/gradscale-cuda prove
phase tiles 120 bin/cuda-tests every_tile_of_every_product --nocapture
phase suite-without-warpgroups 180 env GRADSCALE_WARPGROUPS=0 bash -c 'suite bin/cuda-conformance'
phase suite 180 bash -c 'suite bin/cuda-conformance'
phase bench-products 150 bin/cuda-bench "${small[@]}" copy gemm conv
phase bench-segnet 120 bin/cuda-bench "${small[@]}" segnet
phase peers 120 bash -c peers
phase bench-elements 90 bin/cuda-bench "${small[@]}" copy cast norm cross-entropy update
phase segnet 90 bin/cuda-tests segnet --nocapture
phase train 60 bash -c 'train cuda:0'
# With one GPU, a world of one: NCCL refuses two ranks on the same. Bits are compared either way.
phase nccl 90 bin/cuda-tests ranks --nocapture
phase tasks 120 bin/cuda-tests tasks --nocapture
phase memcheck 180 bash -c 'sanitizer memcheck'
phase racecheck 180 bash -c 'sanitizer racecheck'
phase wgpu-suite 180 bash -c 'suite bin/wgpu-conformance'
phase wgpu-tiles 90 bin/wgpu-tiles
phase wgpu-bench 150 bin/wgpu-bench --bench
((plan == 0)) || exit 0
# What is not run yet.
((within == 0)) || for name in $known; do grep -q "^$name " out/phases.txt 2>/dev/null || echo "still to run: $name"; done
