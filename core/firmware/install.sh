# Fetches the parts that run.sh needs; sourced by it. Failures do not stop the script: a missing part is reported, and
# run.sh then skips the checks that depend on it.

# Every step that talks to a server gets a limit: an unreachable one may not answer at all.
readonly PATIENCE=180

log() { echo "install: $*"; }
as_root() { [ "$(id -u)" = 0 ]; }
quiet() { "$@" >>"$CACHE/install.log" 2>&1; }
apt() { quiet env DEBIAN_FRONTEND=noninteractive timeout "$PATIENCE" apt-get -o DPkg::Lock::Timeout=60 "$@"; }

have_target() { compgen -G "$(rustc --print target-libdir --target "$TARGET" 2>/dev/null)/libcore-*.rlib" >/dev/null; }
have_pair() { [ -x "$CACHE/rustc" ]; }

install_parts() {
    mkdir -p "$CACHE"
    : >"$CACHE/install.log"
    if as_root && command -v apt-get >/dev/null; then
        log "package lists"
        apt update || log "apt-get update failed; trying with the lists that are there"
        command -v readelf >/dev/null || apt install -y --no-install-recommends binutils || log "binutils: not to be had"
        command -v qemu-system-arm >/dev/null || install_qemu
    else
        log "packages need root and apt-get; left alone"
    fi
    if ! command -v cargo >/dev/null; then
        log "no Rust on this machine; install 1.95 or newer (rustup) and run this again"
        return
    fi
    have_target || have_pair || install_target || install_pair || log "no way to compile for $TARGET; see .cache/install.log"
}

# The standard library for the device from the toolchain's own server.
install_target() {
    command -v rustup >/dev/null || return 1
    log "rustup target add $TARGET"
    quiet timeout "$PATIENCE" rustup target add "$TARGET" && have_target
}

# Otherwise a compiler and the library source of the same version from Debian are unpacked in this folder, so that the
# machine's own Rust does not change; cargo then builds `core` itself.
install_pair() {
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    local root=$CACHE/root packages
    log "compiler and library source from Debian"
    packages=$(timeout "$PATIENCE" apt-get -s install --no-install-recommends rustc-web rust-web-src 2>/dev/null |
        awk '$1 == "Inst" { print $2 }') || return 1
    [ -n "$packages" ] || return 1
    rm -rf "$root" "$CACHE/deb"
    mkdir -p "$root" "$CACHE/deb"
    # shellcheck disable=SC2086 # a list of names
    (cd "$CACHE/deb" && apt download $packages) || return 1
    local deb
    for deb in "$CACHE"/deb/*.deb; do
        # Only the library is needed from the source tree: a tenth of it.
        dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$root" --anchored --no-wildcards-match-slash \
            --exclude='./usr/src/*/compiler' --exclude='./usr/src/*/src' --exclude='./usr/src/*/tests' \
            --exclude='./usr/src/*/debian' --exclude='./usr/share' || return 1
    done
    rm -rf "$CACHE/deb"
    cat >"$CACHE/rustc.new" <<WRAPPER
#!/bin/sh
here=\$(dirname "\$0")/root/usr
LD_LIBRARY_PATH=\$here/lib:\$here/lib/$(uname -m)-linux-gnu exec "\$here/bin/rustc" "\$@"
WRAPPER
    chmod +x "$CACHE/rustc.new"
    quiet "$CACHE/rustc.new" -vV || return 1
    local least version
    least=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    version=$("$CACHE/rustc.new" -V | awk '{ print $2 }')
    if [ "$(printf '%s\n' "$least" "$version" | sort -V | head -n 1)" != "$least" ]; then
        log "the compiler in this release's sources is $version, too old for $least"
        return 1
    fi
    mv "$CACHE/rustc.new" "$CACHE/rustc"
}

# A machine with parts of a newer qemu would lose them to the release's own: then the newer one, from backports.
install_qemu() {
    log "qemu-system-arm"
    if ! removes install qemu-system-arm; then
        apt install -y --no-install-recommends qemu-system-arm && return
    fi
    local name site
    name=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
    local suite=$name-backports dir=$CACHE/apt key=/usr/share/keyrings/debian-archive-keyring.gpg options=
    site=$(apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        awk -v name="$name" '$2 == name && $3 == "main" && !site { site = $1 } END { print site }') || true
    [ -n "$site" ] || { log "qemu-system-arm: no source for $suite"; return; }
    # Lists of its own: the machine's sources stay as they are.
    mkdir -p "$dir/parts" "$dir/lists/partial"
    [ -r "$key" ] && options="[signed-by=$key] "
    printf 'deb %s%s %s main\n' "$options" "$site" "$name" "$options" "$site" "$suite" >"$dir/sources.list"
    local with=(-o Dir::Etc::SourceList="$dir/sources.list" -o Dir::Etc::SourceParts="$dir/parts" -o Dir::State::Lists="$dir/lists")
    apt "${with[@]}" update || true
    # The parts of qemu depend on each other's exact version: those present move together.
    local packages=(qemu-system-arm)
    [ "$(dpkg-query -W -f '${db:Status-Status}' qemu-utils 2>/dev/null)" = installed ] && packages+=(qemu-utils)
    if removes "${with[@]}" -t "$suite" install "${packages[@]}"; then
        log "qemu-system-arm: would remove other packages; install it by hand"
        return
    fi
    apt "${with[@]}" -t "$suite" install -y --no-install-recommends "${packages[@]}" ||
        log "qemu-system-arm: not to be had; see .cache/install.log"
}

# Returns true if a call of apt-get would remove a package.
removes() {
    local plan
    plan=$(apt-get -s --no-install-recommends "$@" 2>/dev/null) || true
    grep -q '^Remv' <<<"$plan"
}
