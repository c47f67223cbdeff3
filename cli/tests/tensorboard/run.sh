#!/usr/bin/env bash
# Reads the output of `gradscale train` with TensorBoard's own reader, also after a training was stopped and resumed.
#
#   run.sh             changes nothing on this machine: needs Python with `tensorboard`
#   run.sh --install   first installs it from PyPI into target/python where it is missing
#   run.sh --fetch     does that and nothing else
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}

environment=../../../target/python
python=python3
[ -x "$environment/bin/python" ] && python=$PWD/$environment/bin/python
have_tensorboard() { "$python" -c 'import tensorboard' >/dev/null 2>&1; }
case "${1-}" in
"") ;;
--install | --fetch)
    # `setuptools` before 81: the reader imports pkg_resources.
    have_tensorboard || {
        { python3 -m venv "$environment" &&
            timeout 300 "$environment/bin/pip" install --quiet tensorboard 'setuptools<81'; } ||
            echo "install: tensorboard is not to be had"
        [ -x "$environment/bin/python" ] && python=$PWD/$environment/bin/python
    }
    [ "$1" = --install ] || exit 0
    ;;
*)
    echo "usage: run.sh [--install | --fetch]" >&2
    exit 2
    ;;
esac
if ! have_tensorboard; then
    echo "skipped: everything; pip install tensorboard, or run.sh --install"
    echo "SKIPPED: nothing was checked"
    exit 0
fi

gradscale=$(../../../scripts/built.sh gradscale-cli gradscale)
settings=(train --width 2 --batch 2 --checkpoint-every 10 --threads 1)
"$gradscale" "${settings[@]}" --iters 35 --eval-every 10 --out "$directory/run" >/dev/null || fail "the training"
# As if the training had been killed after step 35 and before its checkpoint: the steps after 30 run again.
rm "$directory/run/checkpoint-000035.safetensors"
"$gradscale" train --resume "$directory/run" --iters 50 --checkpoint-every 10 --threads 1 >/dev/null ||
    fail "the resumed training"
"$python" check.py "$directory/run" || fail "event files and log differ"
echo "PASSED: all that was run"
