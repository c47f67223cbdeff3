#!/usr/bin/env bash
# Trains with 1, 2 and 4 ranks of MPI on this machine: the same checkpoint, byte for byte, also of a training that goes on
# with another number of them, and of an optimizer that is divided; ranks that are not alike are refused in a line; one that
# is killed, hangs or has no disk ends the others.
#
#   mpi.sh             needs mpirun, MPI's headers and libclang
#   mpi.sh --install   first installs Open MPI and libclang by apt-get where they are missing
#   mpi.sh --all       then kills ranks at 50 random moments (killed.py)
#
# GRADSCALE names a program that is there already. The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1-}" in
"" | --install | --fetch | --all) ;;
*)
    echo "usage: mpi.sh [--install | --fetch | --all]" >&2
    exit 2
    ;;
esac
has() { command -v mpirun >/dev/null && [ -n "$(scripts/features.sh)" ]; }
if [ "${1-}" = --install ] || [ "${1-}" = --fetch ]; then
    has || { apt-get update && apt-get install -y libopenmpi-dev openmpi-bin libclang-dev; } \
        >/dev/null 2>&1 || echo "install: Open MPI is not to be had"
    [ "$1" = --install ] || exit 0
fi
if ! has; then
    echo "SKIPPED: there is no mpirun, mpicc or libclang: apt-get install libopenmpi-dev openmpi-bin libclang-dev, or --install"
    exit
fi

gradscale=$(realpath "${GRADSCALE:-$(scripts/built.sh gradscale-cli gradscale)}")
killed=$(realpath scripts/killed.py)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
fail() {
    echo "FAILED: $*"
    exit 1
}
# A container's root may run mpirun, and a machine with two cores four ranks.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
ranks() {
    local count=$1
    shift
    timeout 60 mpirun -n "$count" "$gradscale" train "$@" --threads 1
}
same() { cmp "$1/checkpoint-000006.safetensors" "$2/checkpoint-000006.safetensors" || fail "$1 and $2 differ"; }
small=(--batch 12 --width 4 --iters 6 --checkpoint-every 3)

# A task with these numbers of ranks, of which one is 1, and more options.
worlds() {
    local task=$1 counts=$2 count
    shift 2
    for count in $counts; do
        ranks "$count" --task "$task" "${small[@]}" --micro-batches 12 --out "$task-$count" "$@" >"$task-$count.out" ||
            fail "$task with $count ranks"
        same "$task-1" "$task-$count"
    done
    echo "$task with $counts ranks: $(sha256sum <"$task-1/checkpoint-000006.safetensors" | cut -c1-16)"
}
worlds segnet "1 2 4"
worlds classify "1 4" --method dynamic
worlds language "1 2" --net decoder
# Gradients that travel while the backward pass goes on, few at a time, or when it is over.
for overlap in 300 off; do
    ranks 4 "${small[@]}" --micro-batches 12 --overlap $overlap --out overlap-$overlap >overlap-$overlap.out || fail "--overlap $overlap"
    same segnet-1 overlap-$overlap
done
grep -q ' 0\.0 s of them during the backward pass$' overlap-off.out || fail "nothing was to be hidden: $(cat overlap-off.out)"
awk -F '"hidden":' 'NF > 1 && $2 + 0 > 0 { hidden++ } END { exit hidden < 4 }' overlap-300/log.jsonl || fail "nothing was hidden"
[ "$(grep -c '"ranks":{"ranks":4,' segnet-4/log.jsonl)" = 6 ] || fail "the log says nothing of ranks"
grep -q 'id="ranks"' segnet-4/report.html || fail "the report says nothing of ranks"

ranks 2 "${small[@]}" --micro-batches 12 --shard-optimizer --out sharded >/dev/null || fail "an optimizer that is divided"
same segnet-1 sharded
# Batch norm over the batches of all ranks: the losses of one rank with the whole batch, but for rounding.
loss() { grep -o '"loss":[0-9.]*' "$1/log.jsonl" | cut -d: -f2; }
ranks 1 --task classify "${small[@]}" --method fp32 --out together-1 >/dev/null || fail "a training of one rank"
for of in world rank; do
    ranks 4 --task classify "${small[@]}" --method fp32 --exchange fast --batch-norm $of --out together-$of >/dev/null || fail "batch norm: $of"
    off=$(paste <(loss together-1) <(loss together-$of) | awk '{ d = $1 / $2 - 1; if (d < 0) d = -d; if (d > most) most = d }
        END { print NR == 6 && most < 1e-4 ? "same" : "other" }')
    [ "$of $off" = "world same" ] || [ "$of $off" = "rank other" ] || fail "batch norm of the $of: $off losses"
done
echo "batch norm over 4 ranks: the losses of one with the whole batch"
ranks 2 "${small[@]}" --out measured >measured.out || fail "an exchange that is measured"
grep -q '^gradients of 2 ranks: .* --exchange \(exact\|fast\);' measured.out || fail "$(cat measured.out)"
mkdir resumed
cp segnet-4/checkpoint-000003.safetensors resumed/
head -3 segnet-4/log.jsonl >resumed/log.jsonl
ranks 2 --resume resumed >/dev/null || fail "a resume with another number of ranks"
same segnet-1 resumed
echo "an optimizer that is divided, and 2 ranks that go on where 4 were: the same"

# Checks for one line with this text, and exit code 2.
refused() {
    local line=$1 status=0
    shift
    "$@" >said 2>&1 || status=$?
    [ "$status" = 2 ] || fail "exit status $status: $(cat said)"
    [ "$(grep -c '^gradscale: ' said)" = 1 ] || fail "not one line: $(cat said)"
    grep -q "^gradscale: .*$line" said || fail "not '$line': $(cat said)"
}
# The second rank is another: a command, then options of both.
unlike() {
    local second=$1
    shift
    timeout 60 mpirun -n 1 "$gradscale" train "$@" --threads 1 : -n 1 $second train "$@" --threads 1
}
refused "fewer than the 3 ranks" ranks 3 --batch 12 --micro-batches 2 --out refused
refused "--batch-norm world: needs one micro-batch for each of 2 ranks, not 12" \
    ranks 2 --batch 12 --micro-batches 12 --batch-norm world --out refused
refused 'rank 1 has another batch_norm than rank 0: "world", not "rank"' mpirun \
    -n 1 "$gradscale" train --batch 12 --out refused : -n 1 "$gradscale" train --batch 12 --batch-norm world --out refused
refused "a batch of 12 is not divisible by that" ranks 2 --batch 12 --micro-batches 5 --out refused
refused "rank 1 has another batch than rank 0: 24, not 12" mpirun \
    -n 1 "$gradscale" train --batch 12 --out refused : -n 1 "$gradscale" train --batch 24 --out refused
refused "rank 1 has another overlap than rank 0: off, not on" mpirun \
    -n 1 "$gradscale" train --batch 12 --out refused : -n 1 "$gradscale" train --batch 12 --overlap off --out refused
refused "no such directory" ranks 2 --resume nowhere
refused "a step of this network cannot be split" ranks 2 --task generate --out refused
sed 's/0\.1\.0/0.1.9/g' "$gradscale" >other
chmod +x other
refused "rank 1 has another version than rank 0: 0.1.9, not 0.1.0" unlike ./other --batch 12 --out refused
if unshare --map-root-user --mount true 2>/dev/null; then
    mkdir data otherwise
    seq 5000 >data/train.txt
    seq 5000 | sed '$ s/5000/5001/' >otherwise/train.txt
    cat >elsewhere <<'SH'
#!/bin/sh
exec unshare --map-root-user --mount sh -c 'eval "$MOUNT" && exec "$@"' sh "$PROGRAM" "$@"
SH
    chmod +x elsewhere
    export PROGRAM=$gradscale MOUNT="mount --bind otherwise data"
    text=(--task language --data data --batch 4 --width 8 --iters 2 --out refused)
    refused "rank 1 has another data set than rank 0: " unlike ./elsewhere "${text[@]}"
    export MOUNT="mount -t tmpfs none data"
    refused "rank 1 has another data set than rank 0: " unlike ./elsewhere "${text[@]}"
    export MOUNT="mount -t tmpfs none data && rmdir data 2>/dev/null; mount -t tmpfs none . "
    refused "rank 1: .*No such file" unlike ./elsewhere "${text[@]}"
    mkdir full
    export MOUNT="mount -t tmpfs -o size=1m none full"
    refused "full/.*No space left on device.*resume with" timeout 60 mpirun \
        -n 1 ./elsewhere train --batch 12 --width 16 --iters 6 --checkpoint-every 3 --out full/run --threads 1 : \
        -n 1 "$gradscale" train --batch 12 --width 16 --iters 6 --checkpoint-every 3 --out full/run --threads 1
    # The others write nothing, and miss no room.
    export MOUNT="mount -t tmpfs -o size=4k none full && ! head -c 8192 /dev/zero >full/all 2>/dev/null"
    said=(train "${small[@]}" --micro-batches 12 --out full/other --threads 1)
    timeout 60 mpirun -n 1 "$gradscale" "${said[@]}" : -n 1 ./elsewhere "${said[@]}" >said 2>&1 ||
        fail "a rank that has no disk, and needs none: $(cat said)"
    same segnet-1 full/other
    echo "a full disk ends all where rank 0 writes, and nobody where others do not"
fi
[ ! -e refused ] || fail "a training that was refused has left files"
echo "ranks that are not alike, and parts that are too few, are refused in one line"

# Trains in the background, until there is a checkpoint; ranks are found by their parent.
begin() {
    out=$1
    shift
    timeout 100 mpirun -n 3 "$gradscale" train --batch 12 --width 4 --iters 100000 --checkpoint-every 5 --threads 1 \
        --out "$out" "$@" >"$out.said" 2>&1 &
    begun=$!
    for _ in $(seq 300); do
        [ -e "$out/checkpoint-000005.safetensors" ] && break
        sleep 0.1
    done
    launcher=$(pgrep -P "$begun")
    mapfile -t pids < <(pgrep -P "$launcher")
    [ "${#pids[@]}" = 3 ] || fail "${#pids[@]} ranks: $(cat "$out.said")"
    seconds=$SECONDS
}
ended() {
    wait "$begun" && fail "a training that was ended has ended well"
    [ $((SECONDS - seconds)) -lt 20 ] || fail "the others went on for $((SECONDS - seconds)) s"
    grep -q "$1" "$out.said" || fail "$(cat "$out.said")"
}
begin killed
kill -9 "${pids[1]}"
ended 'process rank 1 .* exited on signal 9'
begin stopped --rank-timeout 2
kill -STOP "${pids[1]}"
ended '^gradscale: rank 1 has not answered for 2 s'
begin told
kill "$launcher"
ended '^gradscale: stopping: .* resume with: '
last=$(find told -name 'checkpoint-*.safetensors' | sort | tail -1 | grep -o '[0-9]*')
ranks 2 --resume told --iters $((10#$last + 2)) >/dev/null || fail "a resume after that"
echo "a rank that is killed or hangs, and a launcher that is told to end, end all with a line, and two go on"
if [ "${1-}" = --all ]; then
    python3 "$killed" "$gradscale" || fail "killed at random"
fi
echo PASSED
