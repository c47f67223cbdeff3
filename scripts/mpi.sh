#!/usr/bin/env bash
# Trains with 1, 2 and 4 ranks of MPI on this machine: the same checkpoint, byte for byte, also of a training that goes on
# with another number of them; ranks that are not alike are refused, and one that is killed ends the others.
#
#   mpi.sh             needs mpirun, MPI's headers and libclang
#   mpi.sh --install   first installs Open MPI and libclang by apt-get where they are missing
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1-}" in
"" | --install | --fetch) ;;
*)
    echo "usage: mpi.sh [--install | --fetch]" >&2
    exit 2
    ;;
esac
has() { command -v mpirun >/dev/null && command -v mpicc >/dev/null && compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null; }
if [ -n "${1-}" ]; then
    has || { apt-get update && apt-get install -y libopenmpi-dev openmpi-bin libclang-dev; } >/dev/null 2>&1 ||
        echo "install: Open MPI is not to be had"
    [ "$1" = --install ] || exit 0
fi
if ! has; then
    echo "SKIPPED: there is no mpirun, mpicc or libclang; --install fetches them"
    exit
fi

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}
# In a place of its own: other tests run the program that has not this feature.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mpi
cargo build --quiet --locked --profile tested -p gradscale-cli --features mpi --target-dir "$target"
gradscale=$target/tested/gradscale

# A container's root may run mpirun, and a machine with two cores four ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ranks() {
    local count=$1
    shift
    timeout 60 mpirun --oversubscribe -n "$count" "$gradscale" train "$@" --threads 1
}
same() { cmp "$1" "$2" || fail "$1 and $2 differ"; }
cd "$directory"

for told in "segnet --width 4 --batch 12" "classify --batch 24 --method dynamic" "language --net decoder --batch 12 --width 16"; do
    name=${told%% *}
    for count in 1 2 4; do
        # shellcheck disable=SC2086
        ranks "$count" --task $told --micro-batches 12 --iters 8 --checkpoint-every 4 --out "$name-$count" >"$name-$count.out" ||
            fail "$name with $count ranks"
        same "$name-1/checkpoint-000008.safetensors" "$name-$count/checkpoint-000008.safetensors"
    done
    grep -q '"ranks":{"ranks":4,' "$name-4/log.jsonl" || fail "the log says nothing of ranks"
    [ "$(wc -l <"$name-4/log.jsonl")" = 8 ] || fail "not one line for each step"
    echo "$name: $(grep -o '.* ranks: .*' "$name-4.out"); 1, 2 and 4 ranks: $(sha256sum <"$name-4/checkpoint-000008.safetensors" | cut -c1-16)"
done

mkdir resumed
cp segnet-4/checkpoint-000004.safetensors resumed/
head -4 segnet-4/log.jsonl >resumed/log.jsonl
ranks 2 --resume resumed >/dev/null || fail "a resume with another number of ranks"
same segnet-1/checkpoint-000008.safetensors resumed/checkpoint-000008.safetensors
echo "resumed with 2 ranks what 4 had begun: the same"

refused() {
    local line=$1
    shift
    "$@" >said 2>&1 && fail "not refused: $line"
    [ "$(grep -c '^gradscale: ' said)" = 1 ] || fail "$(cat said)"
    grep -q "^gradscale: .*$line" said || fail "$(cat said)"
}
refused "3 ranks, and each takes at least one" ranks 3 --batch 12 --micro-batches 2 --out refused
refused "rank 1 has another seed than rank 0: 1, not 0" mpirun --oversubscribe \
    -n 1 "$gradscale" train --batch 12 --threads 1 --out refused : -n 1 "$gradscale" train --batch 12 --threads 1 --seed 1 --out refused
refused "no such directory" ranks 2 --resume nowhere
refused "a step of this network is one" ranks 2 --task generate --out refused
[ ! -e refused ] || fail "a training that was refused has left files"
echo "ranks that are not alike, and parts that are too few, are refused in one line"

ranks 4 --batch 12 --width 4 --iters 100000 --checkpoint-every 5 --out killed >killed.out 2>&1 &
begun=$!
for _ in $(seq 100); do
    [ -e killed/checkpoint-000005.safetensors ] && break
    sleep 0.1
done
victim=$(pgrep -f -- "$gradscale train --batch 12 --width 4 --iters 100000" | tail -1)
kill -9 "$victim"
seconds=$SECONDS
wait "$begun" && fail "a training whose rank was killed has ended well"
[ $((SECONDS - seconds)) -lt 20 ] || fail "the others went on for $((SECONDS - seconds)) s"
grep -q 'exited on signal 9' killed.out || fail "$(cat killed.out)"
last=$(find killed -name 'checkpoint-*.safetensors' | sort | tail -1 | grep -o '[0-9]*')
ranks 2 --resume killed --iters $((10#$last + 2)) >/dev/null || fail "a resume after a kill"
echo "a rank that is killed ends the others, and two go on"
echo PASSED
