#!/usr/bin/env bash
# Prints the path of a program or test that `cargo test --workspace --release` builds, built if need be. Choosing one
# package would choose other features of its dependencies, and build them all once more.
#
#   built.sh PACKAGE TARGET      the test TARGET, or the program if there is none; `lib` for the library's own tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo test --quiet --workspace --release --locked --no-run --message-format=json | python3 -c '
import json, sys
package, name = sys.argv[1:]
found = []
for line in sys.stdin:
    one = json.loads(line)
    path = one.get("executable")
    if path and one["package_id"].split("#")[-1].split("@")[0] == package:
        target = one["target"]
        if target["name"] == name or name == "lib" and "lib" in target["kind"]:
            found.append((one["profile"]["test"], path))
if not found:
    sys.exit(f"{package} has no {name}")
print(max(found)[1])
' "$1" "$2"
