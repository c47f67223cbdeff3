#!/usr/bin/env bash
# Prints the path of a program or test that `./test.sh` builds, built if need be. Choosing one package would choose other
# features of its dependencies, and build them all once more.
#
#   built.sh PACKAGE TARGET             the test or program of that name, or the tests of the library of that name
#   built.sh --example PACKAGE TARGET   the example of that name
#
# GRADSCALE_BUILT names a file with what `cargo test` has said of these programs, as `test.py` builds them: nothing is built.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck disable=SC2046
build() { "$@" --quiet --workspace $(scripts/features.sh) --profile tested --locked --message-format=json; }
command=(build cargo test --tests --no-run)
[ -z "${GRADSCALE_BUILT-}" ] || command=(cat "$GRADSCALE_BUILT")
if [ "${1-}" = --example ]; then
    shift
    # `cargo test --example` would build the tests within the example, not its main function.
    command=(build cargo build --example "$2")
fi
"${command[@]}" | python3 -c '
import json, sys
package, name = sys.argv[1:]
found = []
for line in sys.stdin:
    one = json.loads(line)
    path = one.get("executable")
    if path and one["package_id"].split("#")[-1].split("@")[0] == package:
        target = one["target"]
        # For a program cargo also reports its own tests; for a library there is nothing else.
        if target["name"] == name and not ("bin" in target["kind"] and one["profile"]["test"]):
            found.append(path)
if len(found) != 1:
    sys.exit(f"{package} has {len(found)} of {name}")
print(found[0])
' "$1" "$2"
