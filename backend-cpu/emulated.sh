#!/usr/bin/env bash
# Runs the CPU backend on emulated processors: x86 with AVX2 but without AVX-512, x86 with neither, and AArch64 with
# NEON. Each runs the kernels against their definition, and all cases of the conformance suite that are named below,
# with few inputs, because an emulator is about fifty times slower than a processor.
#
#   emulated.sh            uses what is present; changes nothing but the target folder
#   emulated.sh --install  first fetches what is missing (packages: as root), then the same
#   emulated.sh --fetch    fetches and does nothing else
#   emulated.sh --all      also the whole suite on all of them, and the portable kernels' on AArch64; otherwise those cases alone
#                          whose kernels are an instruction set's own. The others are plain loops, which the unit tests try
#                          everywhere and the suite on AVX2 (where the machine has it) and in WebAssembly (npm/test.sh)
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED (a part is missing and with it some check).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh

readonly ARM=aarch64-unknown-linux-gnu X86=x86_64-unknown-linux-gnu
readonly PACKAGES=(qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
readonly LIMIT=900
export GRADSCALE_BRIEF=1
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc

# qemu knows AVX2 since 7.2.
have_avx() {
    have qemu-x86_64 || return 1
    local version
    version=$(qemu-x86_64 --version | sed -n 's/.* version \([0-9.]*\).*/\1/p')
    [ "$(printf '%s\n' 7.2 "$version" | sort -V | head -n 1)" = 7.2 ]
}
# Otherwise cargo builds the library itself, where its source is.
have_source() { [ -f "$(rustc --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]; }

install_parts() {
    { have_avx && have qemu-aarch64 && have aarch64-linux-gnu-gcc; } || fetch_packages "${PACKAGES[@]}"
    have_library "$ARM" || timeout "$PATIENCE" rustup target add "$ARM" || have_source ||
        timeout "$PATIENCE" rustup component add rust-src ||
        echo "install: no standard library for $ARM, and no source of it"
}

arm_cases="NEON::cast:: NEON::conv:: NEON::gemm:: NEON::store::" arm_sets=best x86_cases=gemm::
case "${1-}" in
"") ;;
--all) arm_cases="portable:: NEON::" arm_sets=all x86_cases= ;;
--install) install_parts ;;
--fetch) install_parts && exit 0 ;;
*)
    echo "usage: emulated.sh [--install | --fetch | --all]" >&2
    exit 2
    ;;
esac

scratch

# Prints the path of a test program of this crate for a target. Those for this machine's own processor are the workspace's.
program() {
    local target=$1 name=$2 options=(--target "$1")
    if [ "$target" = "$(rustc -vV | sed -n 's/^host: //p')" ]; then
        ../scripts/built.sh gradscale-cpu "$name"
        return
    elif ! have_library "$target"; then
        export RUSTC_BOOTSTRAP=1
        options+=(-Zbuild-std)
    fi
    local kind=(--test "$name")
    [ "$name" = gradscale_cpu ] && kind=(--lib)
    cargo test --quiet --locked --profile tested -p gradscale-cpu "${options[@]}" "${kind[@]}" --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

# One emulated processor ($1 its name, $2 and $3 the programs of unit tests and of the suite, $4 the emulator's call): its
# instruction sets must be those of $5, and of the suite those cases run that begin with words of $6.
emulate() {
    local name=$1 units=$2 suite=$3 emulator=$4 sets=$5 run=$6 which
    # The functions of `math.rs` are the same on every processor.
    timeout "$LIMIT" $emulator "$units" --quiet --skip math || return 1
    for which in $run; do
        timeout "$LIMIT" $emulator "$suite" "$which" >"$directory/suite-$name" 2>&1 ||
            { grep -v 'ok$' "$directory/suite-$name"; return 1; }
        local found cases pairs
        found=$(sed -n 's/^device: CPU, \(.*\), [0-9]* threads$/\1/p' "$directory/suite-$name" | paste -sd,)
        [ "$found" = "$sets" ] || { echo "$name has $found, not $sets"; return 1; }
        cases=$(timeout "$LIMIT" $emulator "$suite" --list "$which" 2>/dev/null | grep -c "^$which")
        pairs=$(sed -n 's/^pairs of a device and a case that ran: //p' "$directory/suite-$name")
        [ "$cases" -gt 0 ] && [ "$pairs" = "$cases" ] || { echo "$name: $pairs of $cases cases ran of $which"; return 1; }
        echo "$pairs" >>"$directory/pairs"
        echo "$name ($sets): $pairs cases of $which"
    done
}

on_x86() {
    emulate Haswell "$x86_units" "$x86_suite" "qemu-x86_64 -cpu Haswell" portable,AVX2 "AVX2::$x86_cases" &&
        emulate Nehalem "$x86_units" "$x86_suite" "qemu-x86_64 -cpu Nehalem" portable "portable::$x86_cases"
}
on_arm() {
    local emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu"
    # Nothing else runs these kernels, so the threads are tested too. How the portable kernels divide their work does not
    # depend on the processor: the same tests have seen it on this one.
    emulate AArch64 "$arm_units" "$arm_suite" "$emulator" portable,NEON "$arm_cases" &&
        GRADSCALE_SETS=$arm_sets timeout "$LIMIT" $emulator "$arm_threads" --quiet &&
        echo "AArch64: the same bits for 1, 2, 3, 7 threads" &&
        GRADSCALE_SETS=$arm_sets timeout "$LIMIT" $emulator "$arm_images" --quiet &&
        echo "AArch64: convolutions of small images and many channels"
}

jobs=()
if ! have cargo; then
    skip "everything" "install Rust 1.95 or newer"
else
    if ! have_avx; then
        skip "AVX2 without AVX-512, and x86 with neither" "apt-get install qemu-user (7.2 or newer), or emulated.sh --install"
    elif ! have_library "$X86"; then
        skip "AVX2 without AVX-512, and x86 with neither" "rustup target add $X86"
    else
        x86_units=$(program "$X86" gradscale_cpu)
        x86_suite=$(program "$X86" conformance)
        jobs+=(on_x86)
    fi
    if ! have qemu-aarch64 || ! have aarch64-linux-gnu-gcc; then
        skip "NEON" "apt-get install ${PACKAGES[*]}, or emulated.sh --install"
    elif ! have_library "$ARM" && ! have_source; then
        skip "NEON" "rustup target add $ARM, or emulated.sh --install"
    else
        arm_units=$(program "$ARM" gradscale_cpu)
        arm_suite=$(program "$ARM" conformance)
        arm_threads=$(program "$ARM" threads)
        arm_images=$(program "$ARM" batched_small_conv)
        jobs+=(on_arm)
    fi
fi

# In parallel, because each uses little more than one thread.
pids=()
for job in ${jobs[@]+"${jobs[@]}"}; do
    "$job" >"$directory/$job" 2>&1 &
    pids+=($!)
done
for i in ${!pids[@]}; do
    status=0
    wait "${pids[$i]}" || status=$?
    grep -v "TCG doesn't support" "$directory/${jobs[$i]}" || true
    [ "$status" = 0 ] || fail "${jobs[$i]}"
done

pairs=$(awk '{ sum += $1 } END { print sum + 0 }' "$directory/pairs" 2>/dev/null || echo 0)
if [ "$skipped" = 0 ]; then
    echo "PASSED: $pairs pairs of an instruction set and a case"
elif [ "${#jobs[@]}" = 0 ]; then
    echo "SKIPPED: nothing was checked"
else
    echo "SKIPPED: see above; $pairs pairs of an instruction set and a case held"
fi
