#!/usr/bin/env bash
# Builds what `pip` installs the Python package from, and installs it as a user would: wheels for Linux on x86-64 and
# AArch64, which fit every CPython from 3.9 (abi3) and glibc from 2.17 (manylinux2014), and the source distribution.
#
#   wheels.sh [FOLDER]        builds into FOLDER (default: target/wheels), and tries each of the three
#   wheels.sh --try [FOLDER]  tries what is in FOLDER already
#   wheels.sh --fetch         fetches what is missing into the target folder: maturin, zig, Rust's library for AArch64,
#                             and from Debian an emulator, a Python for AArch64 and the newest Python; it installs no packages
#
# Each trial is an empty environment without Rust. It times `pip install`, and runs the examples of python/README.md and
# docs/numpy.md, whose results are written there. Where PyTorch is installed, python/examples/loop.py trains, too.
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED (a part is missing and with it some check).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
root=$PWD
readonly X86=x86_64-unknown-linux-gnu ARM=aarch64-unknown-linux-gnu
readonly TOOLS=(maturin==1.16.0 ziglang==0.17.1)
# The oldest and the newest Python that are tried; every one between them is tried if it is installed.
readonly OLDEST=9 NEWEST=14
# A suite of Debian that has the newest. Its packages are unpacked, not installed, so the machine may have another one.
readonly SUITE=forky KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
have cargo && have python3 || { echo "SKIPPED: nothing was checked; cargo and python3 are needed"; exit 0; }
[ "$(uname -sm)" = "Linux x86_64" ] || { echo "SKIPPED: nothing was checked; the wheels are built on Linux, x86-64"; exit 0; }
targets=$(target_folder)
tools=$targets/wheels-tools

# Downloads packages with all that they need, and unpacks them into a folder. apt-get gets settings and lists of its own.
unpack_packages() { # folder, architecture, packages
    local folder=$1 architecture=$2 package state
    state=$(mktemp -d)
    shift 2
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
    : >"$state/status"
    echo "deb [signed-by=$KEYS] http://deb.debian.org/debian $SUITE main" >"$state/sources"
    local apt=(
        apt-get -qq -o "APT::Architecture=$architecture" -o "APT::Architectures=$architecture" -o "Dir::State::lists=$state/lists"
        -o "Dir::Cache=$state/cache" -o "Dir::State::status=$state/status" -o "Dir::Etc::sourcelist=$state/sources"
        -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root
    )
    timeout 600 "${apt[@]}" update && timeout 600 "${apt[@]}" install --download-only -y --no-install-recommends "$@" >/dev/null &&
        mkdir -p "$folder" && for package in "$state"/cache/archives/*.deb; do dpkg -x "$package" "$folder"; done
    rm -rf "$state"
    # Otherwise a package that no other needs would create it: the loader of programs is looked for there.
    [ -d "$folder" ] && ln -sfn usr/lib "$folder/lib"
}
fetch() {
    [ -x "$tools/bin/maturin" ] || { python3 -m venv "$tools" && timeout "$PATIENCE" "$tools/bin/pip" install --quiet "${TOOLS[@]}"; } ||
        echo "install: not to be had: ${TOOLS[*]}"
    fetch_library "$ARM"
    if ! have apt-get || ! have dpkg || [ ! -f "$KEYS" ]; then
        echo "install: an emulator and Pythons come from Debian's packages, for which apt-get, dpkg and $KEYS are needed"
        return
    fi
    local python=python3.$NEWEST-minimal
    local packages=("$python" "libpython3.$NEWEST-stdlib" libstdc++6)
    [ -d "$tools/arm64" ] || unpack_packages "$tools/arm64" arm64 "${packages[@]}" || echo "install: no Python for AArch64"
    [ -d "$tools/amd64" ] || unpack_packages "$tools/amd64" amd64 "${packages[@]}" || echo "install: no Python 3.$NEWEST"
    have qemu-aarch64-static || have qemu-aarch64 || [ -d "$tools/emulator" ] ||
        { (cd "$tools" && timeout "$PATIENCE" apt-get -qq download qemu-user-static && dpkg -x qemu-user-static*.deb emulator); } ||
        echo "install: no qemu-user-static"
}
is_built=
case "${1-}" in
--fetch) fetch && exit 0 ;;
--try) is_built=1 && shift ;;
-*)
    echo "usage: wheels.sh [FOLDER | --try [FOLDER] | --fetch]" >&2
    exit 2
    ;;
esac
mkdir -p "${1:-$targets/wheels}"
folder=$(cd "${1:-$targets/wheels}" && pwd)
PATH=$tools/bin:$PATH
have maturin && python3 -c 'import ziglang' 2>/dev/null ||
    { echo "SKIPPED: nothing was checked; scripts/wheels.sh --fetch, or pip install maturin ziglang"; exit 0; }
scratch

# --- building -----------------------------------------------------------------------------------------------------------

# Prepares the sources in a clone: of the README, whose page on the registry has none of the other files beside it, each link
# leads to the repository.
prepare_sources() {
    [ -z "$(git status --porcelain)" ] || echo "not committed, and so not in the wheels: $(git status --porcelain | wc -l) files"
    git clone --quiet --no-hardlinks . "$directory/clone"
    cd "$directory/clone"
    scripts/release.py links python/README.md
}
build_wheel() { # target
    # zig links with the glibc of manylinux2014, whatever this machine has; maturin then checks each symbol's version.
    maturin build --quiet --zig --release --locked --manifest-path python/Cargo.toml --target "$1" --compatibility manylinux2014 \
        --out "$folder" || fail "the wheel for $1"
}
if [ -z "$is_built" ]; then
    rm -f "$folder"/gradscale-*.whl "$folder"/gradscale-*.tar.gz
    prepare_sources
    export CARGO_TARGET_DIR=$targets
    build_wheel "$X86"
    if have_library "$ARM"; then build_wheel "$ARM"; else skip "the wheel for AArch64" "rustup target add $ARM"; fi
    maturin sdist --manifest-path python/Cargo.toml --out "$folder" >/dev/null || fail "the source distribution"
    cd "$root"
    unset CARGO_TARGET_DIR
fi
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Prints the wheel for a processor. Its tags come in either order.
find_wheel() { compgen -G "$folder/gradscale-$version-cp39-abi3-*manylinux2014_$1*.whl"; }
x86_wheel=$(find_wheel x86_64) || fail "$folder has no wheel of $version for CPython 3.9, manylinux2014, x86_64"
arm_wheel=$(find_wheel aarch64) || arm_wheel=
(cd "$folder" && ls -l gradscale-*) | awk '{ print $9 ": " $5 " bytes" }'

# --- trials -------------------------------------------------------------------------------------------------------------

# Without the folders of cargo: pip must not be able to build anything. The locale is fixed, because doctest compares text.
bare() { env -i HOME="$directory" LC_ALL=C.UTF-8 PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 "$@"; }
# No folder of a trial is the checkout, so that the package in the sources is not imported.
cat >"$directory/trial.py" <<'EOF'
import doctest, platform, sys
import gradscale
results = [doctest.testfile(page, module_relative=False) for page in sys.argv[1:]]
tried = sum(result.attempted for result in results)
failed = sum(result.failed for result in results)
print(f"CPython {platform.python_version()}, {platform.machine()}: {tried - failed} of {tried} examples", flush=True)
sys.exit(1 if failed or not tried else 0)
EOF
trial=("$directory/trial.py" "$root/python/README.md" "$root/docs/numpy.md")

# Prints the interpreter of a minor version of Python 3, on the path or from pyenv.
find_python() { # minor version
    local path
    for path in "python3.$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$1".*/bin/python; do
        "$path" -c 'import ensurepip, sys; sys.exit(sys.implementation.name != "cpython")' 2>/dev/null && echo "$path" && return
    done
    return 1
}

# A wheel in an empty environment of an interpreter of this machine.
try_installed() { # interpreter, wheel or source distribution, further words of pip
    local environment=$directory/environment began
    rm -rf "$environment"
    "$1" -m venv "$environment"
    began=$(date +%s%N)
    bare "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: "${@:2}" ||
        fail "pip install with $1"
    echo "pip install: $((($(date +%s%N) - began) / 1000000)) ms, which includes numpy"
    bare "$environment/bin/python" "${trial[@]}" || fail "the examples with $1"
}

# A wheel, and numpy's, beside an interpreter that was unpacked, which cannot make an environment.
try_unpacked() { # architecture, wheel, command that starts the interpreter
    local site=$directory/site-$1 platforms=() tag
    for tag in manylinux2014 manylinux_2_17 manylinux_2_27 manylinux_2_28; do platforms+=(--platform "${tag}_$1"); done
    bare "$tools/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --python-version "3.$NEWEST" \
        "${platforms[@]}" --target "$site" "$2" || fail "pip install for CPython 3.$NEWEST, $1"
    bare PYTHONPATH="$site" "${@:3}" "${trial[@]}" || fail "the examples with CPython 3.$NEWEST, $1"
}

for ((minor = OLDEST; minor <= NEWEST; minor++)); do
    if python=$(find_python "$minor"); then
        try_installed "$python" "$x86_wheel"
    elif [ "$minor" = "$NEWEST" ] && [ -d "$tools/amd64" ]; then
        # With its own C library, which may be newer than this machine's.
        libraries=$tools/amd64/usr/lib/x86_64-linux-gnu
        try_unpacked x86_64 "$x86_wheel" "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" \
            "$tools/amd64/usr/bin/python3.$minor"
    else
        skip "CPython 3.$minor" "pyenv install 3.$minor, or for the newest scripts/wheels.sh --fetch"
    fi
done

emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || echo "$tools/emulator/usr/bin/qemu-aarch64-static")
if [ -n "$arm_wheel" ] && [ -x "$emulator" ] && [ -d "$tools/arm64" ]; then
    try_unpacked aarch64 "$arm_wheel" "$emulator" -L "$tools/arm64" "$tools/arm64/usr/bin/python3.$NEWEST"
else
    skip "trying the wheel for AArch64" "scripts/wheels.sh --fetch, on Debian"
fi

# PyTorch is large, so that of python/test.sh is used, where it is.
torch_python=${PYTHON:-$targets/python-package/bin/python}
if "$torch_python" -c 'import torch' 2>/dev/null; then
    "$torch_python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$directory/torch" "$x86_wheel" ||
        fail "pip install beside PyTorch"
    bare PYTHONPATH="$directory/torch" "$torch_python" "$root/python/examples/loop.py" || fail "python/examples/loop.py"
else
    skip "the wheel with PyTorch" "python/test.sh --fetch"
fi

sources=$folder/gradscale-$version.tar.gz
[ -f "$sources" ] || fail "$folder has no $(basename "$sources")"
# The compiler is needed here. Profile and target are those of the wheel, so that dependencies are compiled already.
CARGO_BUILD_TARGET=$X86 CARGO_TARGET_DIR=$targets "$tools/bin/python" -m pip wheel --quiet \
    --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$directory/built" "$sources" ||
    fail "building the source distribution"
try_installed python3 "$directory"/built/*.whl
verdict "the wheels for x86-64 and AArch64 and the source distribution install and give the documented results"
