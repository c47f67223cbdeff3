#!/usr/bin/env bash
# Builds the Python package as a wheel, and has Python test it: numpy, ml_dtypes, hypothesis and, where it is there, PyTorch.
#
#   test.sh             changes nothing on this machine: needs a Python (the one that PYTHON names, else that of --fetch, else
#                       python3) with maturin, numpy, ml_dtypes, pytest, hypothesis; for gradscale.torch with torch, too
#   test.sh --install   first installs these from PyPI into target/python-package where they are missing
#   test.sh --fetch     does that and nothing else
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
root=$PWD

scratch

environment=$root/target/python-package
find_python() {
    python=${PYTHON:-python3}
    [ -n "${PYTHON-}" ] || [ ! -x "$environment/bin/python" ] || python=$environment/bin/python
}
find_python
has() { "$python" -c "import $1" >/dev/null 2>&1; }
tools=maturin,numpy,ml_dtypes,pytest,hypothesis

case "${1-}" in
"") ;;
--all) export GRADSCALE_ALL=1 GRADSCALE_EXAMPLES=${GRADSCALE_EXAMPLES:-1500} ;;
--install | --fetch)
    has "$tools" || {
        { python3 -m venv "$environment" && timeout 300 "$environment/bin/pip" install --quiet --disable-pip-version-check \
            'maturin>=1.9,<2' numpy ml_dtypes 'pytest>=8' 'hypothesis>=6'; } || echo "install: $tools are not to be had"
        find_python
    }
    # Only in the environment of --fetch; other environments are not changed.
    { has "$tools,torch" || [ "$python" != "$environment/bin/python" ] || scripts/fetch_torch.sh "$environment"; } || echo "install: torch is not to be had"
    [ "$1" = --install ] || exit 0
    ;;
*)
    echo "usage: test.sh [--install | --fetch | --all]" >&2
    exit 2
    ;;
esac
if ! has "$tools"; then
    echo "skipped: everything; pip install ${tools//,/ } torch, or python/test.sh --install"
    echo "SKIPPED: nothing was checked"
    exit 0
fi

# Of the engine Python calls decisions and texts, whose numbers are core's: not optimised, it builds in a fraction of the time.
# The feature lets third-party crates, core and the CPU's kernels be those of the other tests.
"$python" -m maturin build --quiet --locked --profile tested --config profile.tested.package.gradscale.opt-level=0 \
    --features same-features --manifest-path python/Cargo.toml --out "$directory" ||
    fail "the wheel"
# Installed in a separate folder, so that the new build is tested, and not the folder of sources.
"$python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$directory/package" "$directory"/*.whl ||
    fail "installing the wheel"
ls -l "$directory"/*.whl | awk '{ print "wheel: " $5 " bytes" }'
cd python/tests
# Compiled extensions are kept for the next time.
export GRADSCALE_CACHE=$root/target/python-cache
PYTHONPATH=$directory/package PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -p no:cacheprovider --durations=5 . ||
    fail "tests of the package"
# Examples of other libraries run where these are installed. Together they are 0.5 GB, so no option here installs them.
missing=$("$python" -c "
import importlib.util, sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))" \
    accelerate datasets lightning peft timm torchvision transformers trl)
[ -z "$missing" ] || echo "skipped: examples of libraries that are not installed; $python -m pip install $missing"
if ! has torch; then
    echo "skipped: gradscale.torch; pip install torch, or python/test.sh --install"
    echo "PASSED: all but gradscale.torch"
    exit 0
fi
echo "PASSED: all that was run"
