#!/usr/bin/env bash
# Tests the C library as users have it: installed, found by pkg-config, linked as a static and as a shared library.
#
#   test.sh            uses what is present; changes nothing but the target folder
#   test.sh --install  first fetches what is missing (packages: as root), then the same
#   test.sh --fetch    fetches and does nothing else
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED (a part is missing and with it some check).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh

readonly PACKAGES=(gcc g++ libc6-dev pkg-config valgrind)
readonly LIMIT=300

fetch() { { have cc && have c++ && have pkg-config && have valgrind; } || fetch_packages "${PACKAGES[@]}"; }
case "${1-}" in
"") ;;
--install) fetch ;;
--fetch) fetch && exit 0 ;;
*)
    echo "usage: test.sh [--install | --fetch]" >&2
    exit 2
    ;;
esac

scratch
have cargo || { echo "SKIPPED: nothing was checked; cargo is needed (rustup.rs)"; exit 0; }
have cc || { echo "SKIPPED: nothing was checked; apt-get install gcc libc6-dev, or capi/test.sh --install"; exit 0; }

./build.sh "$directory/prefix" || fail "build.sh"
include=(-I"$directory/prefix/include")
static=("$directory/prefix/lib/libgradscale_c.a" -lpthread -ldl -lm)
# Programs of users: all warnings are errors.
strict=(-std=c11 -g -O1 -Wall -Wextra -Wpedantic -Werror)

# With the defaults of each compiler and the standards that C projects name: extensions declare names of their own.
for compiler in cc gcc clang; do
    have "$compiler" || continue
    for standard in "" -std=c99 -std=gnu99 -std=c17 -std=gnu17; do
        # shellcheck disable=SC2086
        "$compiler" $standard "${include[@]}" -c examples/mlp.c -o "$directory/default.o" || fail "mlp.c by $compiler $standard"
    done
done
for compiler in c++ g++ clang++; do
    have "$compiler" || continue
    "$compiler" "${include[@]}" -c examples/steps.cpp -o "$directory/default.o" || fail "steps.cpp by $compiler"
    "$compiler" -x c++ "${include[@]}" -c examples/mlp.c -o "$directory/default.o" || fail "mlp.c by $compiler"
done

compile() {
    local to=$1
    shift
    cc "${strict[@]}" "${include[@]}" "$@" -o "$directory/$to" || fail "$to does not compile"
}
run() {
    timeout "$LIMIT" "$@" >"$directory/output" 2>&1 || { cat "$directory/output"; fail "${*##*/}"; }
    cat "$directory/output"
}

# The same bits as Rust.
compile rows tests/rows.c "${static[@]}"
run "$directory/rows" | tee "$directory/in-c"
diff "$directory/in-c" tests/rows.txt || fail "C and Rust differ: tests/rows.rs says what Rust computes"

# The example learns, and FP16 alone does not.
compile mlp examples/mlp.c "${static[@]}"
right() { run "$directory/mlp" "$1" | sed -n 's/.* \([0-9]*\) of 1000 points are right$/\1/p'; }
scaled=$(right gs) plain=$(right fp16)
echo "mlp: $scaled of 1000 points right with sites, $plain in FP16 alone"
[ "$scaled" -gt 950 ] && [ "$plain" -lt 700 ] || fail "mlp"

# Misuse and the example under sanitizers.
sanitize=(-fsanitize=address,undefined -fno-sanitize-recover=all)
echo 'int main(void) { return 0; }' >"$directory/empty.c"
if cc "${sanitize[@]}" "$directory/empty.c" -o "$directory/empty" 2>/dev/null && "$directory/empty"; then
    compile misuse "${sanitize[@]}" tests/misuse.c "${static[@]}"
    run "$directory/misuse"
    compile mlp-sanitized "${sanitize[@]}" examples/mlp.c "${static[@]}"
    run "$directory/mlp-sanitized" gs >/dev/null
    echo "sanitizers: nothing"
else
    compile misuse tests/misuse.c "${static[@]}"
    run "$directory/misuse"
    skip "address and undefined behaviour sanitizers" "this compiler has none"
fi

# Valgrind sees into the library too.
if have valgrind; then
    compile misuse-plain tests/misuse.c "${static[@]}"
    for call in "misuse-plain 200" "rows 500"; do
        # shellcheck disable=SC2086
        run valgrind --quiet --error-exitcode=9 --leak-check=full "$directory/"${call} >/dev/null
    done
    echo "valgrind: nothing"
else
    skip "valgrind" "apt-get install valgrind, or test.sh --install"
fi

# As a shared library, in C++, found by pkg-config.
if have c++ && have pkg-config; then
    export PKG_CONFIG_PATH=$directory/prefix/lib/pkgconfig
    # shellcheck disable=SC2046
    c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror examples/steps.cpp $(pkg-config --cflags --libs gradscale) \
        -o "$directory/steps" || fail "steps does not compile"
    export LD_LIBRARY_PATH=$directory/prefix/lib DYLD_LIBRARY_PATH=$directory/prefix/lib
    run "$directory/steps" | tail -n 1
else
    skip "C++ and the shared library" "apt-get install g++ pkg-config, or test.sh --install"
fi

# Without a standard library. That it links proves that nothing in it can panic (src/lib.rs).
if [ "$(uname -s)" = Linux ]; then
    bare=$(./build.sh --bare) || fail "the library for bare metal"
    compile bare tests/misuse.c "$bare" -lm -Wl,--gc-sections
    run "$directory/bare" 500 >/dev/null
    echo "bare metal: no panic is linked, $(size "$directory/bare" | awk 'NR == 2 { print $1 }') bytes of code with the test"
else
    skip "that no panic is linked" "Linux's linker is needed"
fi

verdict "$(sed 's/:.*//' "$directory/in-c") with the bits of Rust; misuse refused"
