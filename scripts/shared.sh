# Functions of the scripts that build, fetch and test parts of the project; sourced by them.

# Every step that talks to a server gets a limit: an unreachable one may not answer at all.
readonly PATIENCE=180
export RUST_BACKTRACE=0

have() { command -v "$1" >/dev/null; }
# Returns true if Rust can compile for a target.
have_library() { compgen -G "$(rustc --print target-libdir --target "$1" 2>/dev/null)/libstd-*.rlib" >/dev/null; }
# The oldest that is tested here.
have_node() { have node && node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)'; }
# The folder that cargo builds into.
target_folder() { cargo metadata --format-version 1 --no-deps --locked | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'; }

# Installs packages of Debian or Ubuntu, as root. Unavailable packages are reported, and the script continues without
# them.
fetch_packages() {
    if [ "$(id -u)" != 0 ] || ! have apt-get; then
        echo "install: packages need root and apt-get; left alone: $*"
        return
    fi
    echo "install: $*"
    # Another process may be installing too, and an interrupted installation leaves packages broken.
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=60)
    timeout "$PATIENCE" "${apt[@]}" update || echo "install: no new package lists; trying with those that are there"
    timeout 900 "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null || echo "install: not to be had: $*"
}
# Lets Rust compile for a target.
fetch_library() {
    have_library "$1" || timeout "$PATIENCE" rustup target add "$1" || echo "install: not to be had: Rust's library for $1"
}

# Makes a folder `directory` that is gone when the script ends.
scratch() {
    directory=$(mktemp -d)
    trap 'rm -rf "$directory"' EXIT
}
fail() {
    echo "FAILED: $*"
    exit 1
}
skipped=0
skip() {
    echo "skipped: $1; $2"
    skipped=$((skipped + 1))
}
# The last line: PASSED with these words, if nothing was skipped.
verdict() {
    if [ "$skipped" = 0 ]; then
        echo "PASSED: $*"
    else
        echo "SKIPPED: see above; the rest held"
    fi
}
