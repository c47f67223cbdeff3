#!/usr/bin/env bash
# Compares ONNX Runtime's results with this engine's: for every network of the library by tests/engine/examples/onnx.rs,
# and for the output of `gradscale export` after a training of each task.
#
#   run.sh             changes nothing on this machine: needs a Python (the one that PYTHON names, else that of --fetch, else
#                      python3) with numpy, onnx, onnxruntime
#   run.sh --install   first installs these from PyPI into target/onnx where they are missing
#   run.sh --fetch     does that and nothing else
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. scripts/shared.sh
root=$PWD
readonly LIMIT=300

scratch

environment=$root/target/onnx
find_python() {
    python=${PYTHON:-python3}
    [ -n "${PYTHON-}" ] || [ ! -x "$environment/bin/python" ] || python=$environment/bin/python
}
find_python
has() { "$python" -c "import numpy, onnx, onnxruntime" >/dev/null 2>&1; }
case "${1-}" in
"") ;;
--install | --fetch)
    has || {
        { python3 -m venv "$environment" && timeout 300 "$environment/bin/pip" install --quiet \
            --disable-pip-version-check numpy 'onnx>=1.16' 'onnxruntime>=1.18'; } ||
            echo "install: onnx and onnxruntime are not to be had"
        find_python
    }
    [ "$1" = --install ] || exit 0
    ;;
*)
    echo "usage: run.sh [--install | --fetch]" >&2
    exit 2
    ;;
esac
has || { echo "SKIPPED: $python has no numpy, onnx and onnxruntime: run.sh --install, or PYTHON=…"; exit 0; }

models=$(scripts/built.sh --example gradscale-engine-tests onnx)
program=$(scripts/built.sh gradscale-cli gradscale)
timeout "$LIMIT" "$models" "$directory/networks" || fail "the example onnx"

# One step of a network of each task, and its model.
mkdir "$directory/runs"
export_run() {
    local name=$1 wide=$2
    shift 2
    timeout "$LIMIT" "$program" train --out "$directory/runs/$name" --iters 1 --batch 2 --width "$wide" "$@" \
        >"$directory/log" 2>&1 || { tail -n 5 "$directory/log"; fail "gradscale train of $name"; }
    timeout "$LIMIT" "$program" export "$directory/runs/$name/checkpoint-000001.safetensors" --half \
        --out "$directory/runs/$name.onnx" "${more[@]}" >"$directory/log" 2>&1 ||
        { cat "$directory/log"; fail "gradscale export of $name"; }
}
more=(--size 45x60 --batch 2) && export_run segnet 4 --task segnet
more=() && export_run classify 4 --task classify
more=() && export_run towers 4 --task classify --network towers
more=() && export_run ssd 4 --task detect --network ssd-300
more=() && export_run faster-rcnn 4 --task detect --network faster-rcnn
more=(--length 40) && export_run speech 4 --task speech
more=(--length 7 --batch 3) && export_run translate 4 --task translate
more=(--length 8) && export_run biglstm 4 --task language --network biglstm
more=(--length 8) && export_run decoder 4 --task language --network decoder
more=() && export_run generate 4 --task generate

timeout "$LIMIT" "$python" tests/onnx/compare.py "$directory/networks" "$directory/runs" >"$directory/said" 2>"$directory/errors" || {
    cat "$directory/said" "$directory/errors"
    fail "answers differ"
}
echo "PASSED: $(tail -n 1 "$directory/said")"
