#!/usr/bin/env bash
# Tests and measures gradscale on this machine's GPU. Each phase of phases.tsv is a process with a time limit and an output
# file of its own in `out`; a phase that fails does not stop the next. `out/phases.txt` has one line for each phase: name,
# exit status (124: time limit; 75: its trainings go on in the next command), seconds.
#
#   run.sh                   every phase, in the order of phases.tsv: the most important first
#   run.sh PHASE ...         these phases
#   run.sh --within SECONDS  the most important phases that were measured neither at this commit nor in `out`, as many as
#                            fit; for example `run.sh --within 560`, then `run.sh --within 200` in a second command
#   run.sh --plan            what two commands of 560 and 200 s would cover, by the seconds that phases.tsv expects
#   run.sh --rehearse ...    small sizes, for an emulated device; Python phases run on the CPU
#
# GRADSCALE_PHASE_SECONDS replaces the time limit of every phase.
#
# Needs bash with coreutils, grep and sed, and a driver. Python with torch, NCCL, compute-sanitizer, ncu and a Vulkan
# driver are used if they exist. A phase that lacks a requirement prints "not here" and passes.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1
usage() { sed -n '/^#   run.sh/s/^#   //p' run.sh >&2 && exit 2; }

# --- the phases ---------------------------------------------------------------------------------------------------------

# Ends the phase where there is no Python with these modules.
python_with() { # modules
    local module
    command -v python3 >/dev/null || { echo "not here: no Python" && exit 0; }
    for module in "$@"; do
        python3 -c "import $module" 2>/dev/null || { echo "not here: no Python with $module" && exit 0; }
    done
}

# A line with the range of clocks and power while a command runs: a figure that heat or a power limit decides shows it.
with_clocks() {
    local log status=0 sampler=
    log=$(mktemp)
    if command -v nvidia-smi >/dev/null; then
        nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader,nounits -lms 250 >"$log" 2>/dev/null &
        sampler=$!
    fi
    "$@" || status=$?
    [[ -z "$sampler" ]] || { kill "$sampler" && wait "$sampler"; } 2>/dev/null
    # Highest and lowest of each column while the card draws more than half of its maximum.
    awk -F', *' '{ if ($3 > top) top = $3; row[NR] = $0 } END {
        for (i = 1; i <= NR; i++) { split(row[i], v, /, */); if (v[3] < top / 2) continue
            for (c = 1; c <= 4; c++) { if (!n || v[c] < low[c]) low[c] = v[c]; if (!n || v[c] > high[c]) high[c] = v[c] } n++ }
        if (n) printf "while busy: SM %d to %d MHz, memory %d to %d MHz, %.0f to %.0f W, %d to %d °C\n",
            low[1], high[1], low[2], high[2], low[3], high[3], low[4], high[4] }' "$log" 2>/dev/null
    rm -f "$log"
    return "$status"
}

# The conformance suite in parallel parts, because a driver that compiles kernels uses a single processor.
suite() { # program
    local name status=0 skipped=() running=()
    # With one processor the parts would only compile the same kernels several times.
    if (($(nproc) == 1)); then
        "$1"
        return
    fi
    # At the time limit, too, the output shows how far each part came.
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

sanitizer() { # tool
    local program
    program=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
    [[ -n "$program" ]] || { echo "not here: no compute-sanitizer" && return 0; }
    "$program" --tool "$1" --error-exitcode 3 bin/cuda-tests every_tile_of_every_product products_in_eight_bits
}

# A part of the Python package's tests, with the package from the wheel of this bundle.
torch_tests() { # expression of pytest
    python_with torch numpy pytest hypothesis
    unpack_wheel
    local device=cuda
    ((rehearsing)) && device=cpu
    # pytest would skip every test and pass.
    [[ "$device" == cpu ]] || python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' ||
        { echo "not here: PyTorch sees no GPU" && return; }
    (cd tests && PYTHONPATH=../out/site PYTHONDONTWRITEBYTECODE=1 python3 -m pytest -q -p no:cacheprovider --durations=5 \
        --device "$device" -k "$1" test_torch_cuda.py)
}

unpack_wheel() {
    # A wheel is a ZIP archive.
    [[ -d out/site ]] || python3 -m zipfile -e wheel/*.whl out/site
}

# One launch of a kernel under ncu, with the sections that show what bounds it.
profile() { # kernel (regular expression), its launches before, words of the bench
    local kernel=$1 skipped=$2
    shift 2
    "$ncu" --csv --page details --kernel-name "regex:$kernel" --launch-skip "$skipped" --launch-count 1 --section SpeedOfLight \
        --section MemoryWorkloadAnalysis --section Occupancy --section WarpStateStats --section LaunchStats \
        bin/cuda-bench "$@" 2>&1 | grep -E '^"|==ERROR==|==WARNING==' || echo "no launch of $kernel was profiled"
}

phase_environment() {
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
phase_baseline() {
    with_clocks bin/cuda-bench "${small[@]}" copy || return
    python_with torch
    python3 peers.py "${on_cpu[@]}" copy
}
phase_prove() {
    # A card proves a kernel in milliseconds. The emulated device takes minutes, which is no reason to call it hung.
    local limit=20
    ((rehearsing)) && limit=900
    GRADSCALE_PROVE_SECONDS=$limit bin/gradscale-cuda prove
}
phase_tiles() { bin/cuda-tests every_tile_of_every_product products_in_f32 --nocapture; }
phase_torch_stores() { torch_tests stores; }
phase_torch_modules() { torch_tests "modules or attention"; }
phase_torch_train() { torch_tests "not stores and not modules and not attention"; }
phase_torch_speed() {
    python_with torch numpy
    unpack_wheel
    PYTHONPATH=out/site with_clocks python3 torch_cuda.py "${on_cpu[@]}"
}
phase_torch_trl() {
    python_with torch numpy
    unpack_wheel
    PYTHONPATH=out/site with_clocks python3 trl_phase.py "${on_cpu[@]}"
}
phase_launches() { bin/cuda-bench "${small[@]}" launches; }
phase_wgpu_tiles() {
    # A software driver may lack cooperative matrices; a GPU that is measured for them must have them.
    local required=1
    ((rehearsing)) && required=0
    GRADSCALE_REQUIRE_COOP=$required bin/wgpu-tiles --nocapture
}
phase_wgpu_bench() { with_clocks bin/wgpu-bench --bench gemm cast conv norm update attention plain segnet; }
phase_wgpu_bench_simt() { GRADSCALE_WGPU_PRODUCTS=simt bin/wgpu-bench --bench gemm conv attention segnet; }
phase_wgpu_launches() { bin/wgpu-bench --bench launches; }
phase_burn() {
    local program programs=(burn-wgsl burn-spirv) status=0
    # lavapipe of Mesa 22.3 ends with a segmentation fault in what burn compiles to SPIR-V.
    ((rehearsing)) && programs=(burn-wgsl)
    [[ -x bin/burn-wgsl ]] || { echo "not here: burn's program, which gpu_bundle.py builds with --burn" && return; }
    for program in "${programs[@]}"; do
        with_clocks bin/$program "${small[@]}" || status=$?
    done
    return "$status"
}
phase_bench_odd() { bin/cuda-bench "${small[@]}" copy odd f32; }
phase_networks() { with_clocks bin/cuda-bench "${small[@]}" networks; }
phase_networks_torch() {
    python_with torch
    with_clocks python3 networks.py "${on_cpu[@]}" --seconds 100
}
phase_bench_segnet() { with_clocks bin/cuda-bench "${small[@]}" segnet; }
phase_peers() {
    python_with torch
    with_clocks python3 peers.py "${on_cpu[@]}" copy conv odd segnet f32
}
phase_peers_compiled() {
    python_with torch
    with_clocks python3 peers.py "${on_cpu[@]}" compiled --compile-seconds 100
}
phase_bench_products() { with_clocks bin/cuda-bench "${small[@]}" copy gemm conv; }
# The test prints "not here" on a card without units for eight bits.
phase_fp8() {
    bin/cuda-tests products_in_eight_bits --nocapture || return
    with_clocks bin/cuda-bench "${small[@]}" fp8 || return
    python_with torch
    python3 peers.py "${on_cpu[@]}" fp8
}
phase_attention() {
    with_clocks bin/cuda-bench "${small[@]}" attention || return
    python_with torch
    python3 peers.py "${on_cpu[@]}" attention
}
phase_bench_elements() { bin/cuda-bench "${small[@]}" copy cast norm softmax cross-entropy update; }
phase_ablation() { with_clocks bin/cuda-bench "${small[@]}" ablation; }
phase_ncu() {
    ncu=$(command -v ncu || ls /usr/local/cuda*/bin/ncu 2>/dev/null | head -1)
    [[ -n "$ncu" ]] || { echo "not here: no ncu" && return 0; }
    # A self-test launches each kernel of this architecture alone once.
    profile '^conv_halo$' 1 "conv decoder.conv1 Forward"
    profile '^conv_halo$' 1 "conv encoder.conv1 Forward"
    profile '^wgmma_tma$' 1 ablation
    profile '^pool_2x2$' 0 launches
    profile '^norm_moments' 0 norm
}
phase_segnet() { bin/cuda-tests segnet --nocapture; }
phase_train() {
    rm -rf out/run
    local data=()
    [[ -d data/fashion-mnist-10k ]] && data=(--data data/fashion-mnist-10k)
    # An emulated device takes seconds for a step.
    local iterations=200
    ((rehearsing)) && iterations=20
    bin/gradscale train --network mlp --device cuda:0 "${data[@]}" --iters "$iterations" --out out/run
}
# With one GPU, a group of one rank, because NCCL refuses two ranks on the same GPU. Bits are compared in both cases.
phase_nccl() { bin/cuda-tests ranks --nocapture; }
phase_tasks() { bin/cuda-tests tasks --nocapture; }
phase_suite() { suite bin/cuda-conformance; }
phase_suite_mma() { GRADSCALE_WARPGROUPS=0 suite bin/cuda-conformance; }
phase_wgpu_suite() { suite bin/wgpu-conformance; }

# A natural experiment by PyTorch's own GradScaler and by attach. It begins no run that the limit would cut off.
natural() { # experiment
    python_with torch numpy
    unpack_wheel
    local seeds=()
    read -ra seeds <<<"${GRADSCALE_SEEDS-0 1 2}"
    PYTHONPATH=out/site python3 gpu.py "$1" "${on_cpu[@]}" --seconds $((limit * 4 / 5)) --seeds "${seeds[@]}"
}
phase_natural_image() { natural bad_image; }
phase_natural_speech() { natural short_recordings; }
phase_natural_lock() { natural rare_reward; }
# The engine's regimes run on the CPU, whatever card there is.
phase_natural_engine() {
    rm -rf out/natural-engine
    local words=(--only bad-sample:nan,short-recordings,rare-reward --out out/natural-engine)
    [[ -d data/cifar10-10k ]] && words+=(--data data/cifar10-10k)
    [[ -d data/fsdd ]] && words+=(--recordings data/fsdd)
    ((rehearsing)) && words+=(--quick)
    bin/gradscale regimes "${words[@]}"
}

# Trainings of SegNet by several methods, seed by seed. What is cut off goes on in the next command: it ends with status 75.
# `GRADSCALE_SEEDS` has other seeds, so that visits can divide them. Prints one row a training.
table3() { # folder, data, steps, seeds, methods
    local folder=out/$1 data=$2 steps=$3 seeds=${GRADSCALE_SEEDS-$4} sizes=(--width 64 --batch 12) seed method left status
    shift 4
    [[ -d data/$data ]] || { echo "not here: no data $data" && return 0; }
    ((rehearsing)) && steps=4 sizes=(--width 2 --batch 2)
    mkdir -p "$folder"
    for seed in $seeds; do
        for method in "$@"; do
            local out=$folder/${method//:/-}-$seed
            [[ -f "$out/done" ]] && continue
            # A training that is stopped saves a checkpoint within the last seconds.
            left=$((limit - 20 - SECONDS))
            ((left > 0)) || { print_table3 "$folder"; echo "to be resumed: $method, seed $seed" && return 75; }
            status=0
            if [[ -d "$out" ]]; then
                timeout "$left" bin/gradscale train --resume "$out" || status=$?
            else
                timeout "$left" bin/gradscale train --network segnet-basic --data "data/$data" --device cuda:0 \
                    "${sizes[@]}" --pixels 2073600 --iters "$steps" --checkpoint-every 2000 --method "$method" \
                    --seed "$seed" --out "$out" || status=$?
            fi
            ((status == 0)) && : >"$out/done" && continue
            print_table3 "$folder"
            ((status == 124)) && { echo "to be resumed: $method, seed $seed" && return 75; }
            return "$status"
        done
    done
    print_table3 "$folder"
}

# The last step of each training that has ended, from its log, as a table.
print_table3() { # folder
    local out last name
    echo "| what | steps | mIoU % | training loss, last half |"
    echo "|---|---|---|---|"
    for out in "$1"/*/; do
        [[ -f "${out}done" ]] || continue
        last=$(tail -n 1 "${out}log.jsonl") name=${out%/}
        printf '| %s | %s | %s | %s |\n' "${name##*/}" "$(sed -n 's/.*"iteration":\([0-9]*\).*/\1/p' <<<"$last")" \
            "$(sed -n 's/.*"scores":{[^}]*"miou":\([0-9.]*\).*/\1/p' <<<"$last" | awk '{ printf "%.2f", 100 * $1 }')" \
            "$(awk -F'"loss":' '{ split($2, part, /[,}]/); loss[NR] = part[1] } END {
                for (i = int(NR / 2) + 1; i <= NR; i++) if (loss[i] != "null") { sum += loss[i]; n++ }
                if (n) printf "%.5f", sum / n; else printf "–" }' "${out}log.jsonl")"
    done
}
phase_table3_small() { table3 table3-small camvid-180x240 4000 "0 1 2" dynamic torch zhao gs:authors gs; }
phase_table3_full() { table3 table3-full camvid-360x480 16000 "0" zhao gs; }
# On made-up data: the window depends on the network, the batch and the size, little on the images.
phase_windows() {
    local network words status=0
    for network in alexnet vgg-16 googlenet inception-v2 inception-v3 resnet-18 resnet-50 ssd-300 ssd-512 faster-rcnn \
        segnet-basic segnet deep-speech-2 seq2seq-1 biglstm decoder dcgan; do
        words=(--network "$network" --size paper)
        # An emulated device takes minutes for a network of full size.
        ((rehearsing)) && words=(--network "$network" --width 2 --batch 2)
        echo "gradscale window ${words[*]}"
        bin/gradscale window --device cuda:0 "${words[@]}" || status=$?
        ((rehearsing)) && break
    done
    return "$status"
}
phase_memcheck() { sanitizer memcheck; }
phase_racecheck() { sanitizer racecheck; }

# --- which of them run --------------------------------------------------------------------------------------------------

rehearsing=${GRADSCALE_REHEARSING-0} limit=${GRADSCALE_LIMIT-600} small=() on_cpu=()
# Process of a single phase: this script, started by itself under a time limit.
if [[ "${1-}" == --phase ]]; then
    if ((rehearsing)); then
        # record.py takes no output that begins so for a measurement.
        echo "rehearsal: small sizes, on an emulated device or on the CPU"
        small=(--small) on_cpu=(--device cpu --small)
    fi
    "phase_${2//-/_}"
    exit
fi
[[ "${1-}" == --rehearse ]] && rehearsing=1 && shift
plan=0 within=0
case "${1-}" in
--plan) plan=1 && shift ;;
--within)
    within=${2-}
    [[ "$within" =~ ^[1-9][0-9]*$ ]] || usage
    shift 2
    ;;
--*) usage ;;
esac
names=() seconds=() limits=()
while IFS=$'\t' read -r name expected limit _; do
    names+=("$name") seconds+=("$expected") limits+=("$limit")
done < <(tail -n +2 phases.tsv)
for name in "$@"; do
    [[ " ${names[*]} " == *" $name "* ]] || { echo "$name is not a phase; the phases are: ${names[*]}" >&2 && exit 2; }
done
chosen=" $* "

is_chosen() { [[ "$chosen" == "  " || "$chosen" == *" $1 "* ]]; }

# Returns true if `out` has the phase, or the record has it at this commit. Named phases always run.
is_measured() { # name
    [[ -f out/phases.txt ]] && grep "^$1 " out/phases.txt | grep -qv "^$1 75 " && return 0
    [[ "$chosen" == "  " && -f measured ]] && grep -qx "$1" measured
}

# Returns true if a phase probably ends in the remaining seconds: it may take a quarter longer than expected.
fits() { # expected seconds, seconds left
    (($1 + $1 / 4 <= $2))
}

run_phase() { # name, time limit
    local start=$SECONDS status=0
    mkdir -p out
    GRADSCALE_REHEARSING=$rehearsing GRADSCALE_LIMIT=$2 timeout --kill-after=10 "$2" bash run.sh --phase "$1" >"out/$1.txt" 2>&1 </dev/null ||
        status=$?
    # A phase that runs again replaces its line.
    [[ -f out/phases.txt ]] && sed -i "/^$1 /d" out/phases.txt
    echo "$1 $status $((SECONDS - start))" >>out/phases.txt
    echo "$1: status $status, $((SECONDS - start)) s"
}

# Two commands of a machine that is there for 15 minutes, of which starting and copying take some two.
print_plan() {
    local call used=0 i
    local -A planned=()
    for call in 560 200; do
        used=0
        echo "run.sh --within $call:"
        for i in "${!names[@]}"; do
            name=${names[i]}
            [[ -z "${planned[$name]-}" ]] && is_chosen "$name" || continue
            is_measured "$name" && planned[$name]=1 && continue
            fits "${seconds[i]}" $((call - used - 10)) || continue
            used=$((used + seconds[i])) planned[$name]=1
            printf '  %-16s %4d s, ends after %d:%02d\n' "$name" "${seconds[i]}" $((used / 60)) $((used % 60))
        done
    done
    local left=()
    for name in "${names[@]}"; do
        is_chosen "$name" && [[ -z "${planned[$name]-}" ]] && left+=("$name")
    done
    echo "not covered: ${left[*]:-nothing}"
}
((plan)) && print_plan && exit 0

# If Python packages contain the run-time compiler, cuBLASLt and NCCL, they are used.
wheels=$(python3 -c 'import nvidia; at = list(nvidia.__path__)[0]; print(f"{at}/cu13/lib:{at}/nccl/lib")' 2>/dev/null || true)
# The Vulkan loader is in `lib`, with the libraries that NVIDIA's Vulkan driver is linked to.
for driver in /usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json; do
    [[ -f "$driver" && -z "${VK_DRIVER_FILES-}" && ! -d /usr/share/vulkan/icd.d ]] && export VK_DRIVER_FILES=$driver
done
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}${wheels:+:$wheels}:$PWD/lib"
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH#:}" RUST_BACKTRACE=0 GRADSCALE_REQUIRE_DEVICE=1 PYTHONUNBUFFERED=1
export GRADSCALE_CUBINS=$PWD/out/cubins
# Without it Vulkan drivers print an error, which would become part of the machine's description.
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR-$PWD/out}

for i in "${!names[@]}"; do
    name=${names[i]} limit=${GRADSCALE_PHASE_SECONDS-${limits[i]}}
    is_chosen "$name" || continue
    if ((within)); then
        is_measured "$name" && continue
        left=$((within - SECONDS - 10))
        # A less important phase may still fit where this one does not.
        fits "${seconds[i]}" "$left" || continue
        ((limit <= left)) || limit=$left
    fi
    run_phase "$name" "$limit"
done
((within == 0)) || for name in "${names[@]}"; do
    is_chosen "$name" && ! is_measured "$name" && echo "still to run: $name"
done
exit 0
