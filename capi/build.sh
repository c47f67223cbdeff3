#!/usr/bin/env bash
# Builds the C library and installs it: headers, static and shared library, gradscale.pc for pkg-config.
#
#   build.sh [PREFIX]   into PREFIX, or /usr/local
#   build.sh --bare     prints the path of the static library for bare metal: no standard library, no libc but memcpy and
#                       its like. CARGO_BUILD_TARGET names the processor
#
# Needs cargo; nothing else is installed or changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh
have cargo || { echo "build.sh needs cargo: Rust 1.95 or newer" >&2; exit 2; }
build() { cargo rustc --quiet --locked --profile capi -p gradscale-capi --lib "$@"; }
target=$(target_folder)
out=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}capi

case "${1-}" in
--bare)
    build --no-default-features --crate-type staticlib
    # The next build takes its name.
    cp "$out/libgradscale_c.a" "$out/libgradscale_bare.a"
    echo "$out/libgradscale_bare.a"
    exit 0
    ;;
-*)
    echo "usage: build.sh [PREFIX | --bare]" >&2
    exit 2
    ;;
esac
prefix=${1:-/usr/local}
mkdir -p "$prefix"/{include,lib/pkgconfig}
prefix=$(cd "$prefix" && pwd)
version=$(sed -n 's/^version = "\(.*\)"/\1/p' ../Cargo.toml | head -n 1)
name=libgradscale_c.so.${version%.*}
case "$(uname -s)" in
Darwin) shared=libgradscale_c.dylib; link=-Wl,-install_name,$prefix/lib/$shared; named=$shared ;;
*) shared=libgradscale_c.so; link=-Wl,-soname,$name; named=$name ;;
esac
build --crate-type staticlib
build --crate-type cdylib -- -C "link-arg=$link"
install -m 644 include/gradscale.h include/gradscale.hpp "$prefix/include/"
install -m 644 "$out/libgradscale_c.a" "$prefix/lib/"
install -m 755 "$out/$shared" "$prefix/lib/$named"
[ "$named" = "$shared" ] || ln -sf "$named" "$prefix/lib/$shared"
cat >"$prefix/lib/pkgconfig/gradscale.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: gradscale
Description: FP16 training with a separate scale for every gradient
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lgradscale_c
Libs.private: -lpthread -ldl -lm
END
echo "installed into $prefix"
