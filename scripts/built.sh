#!/usr/bin/env bash
# Prints the path of a program or test that `cargo test --workspace --profile tested` builds, built if need be. Choosing one
# package would choose other features of its dependencies, and build them all once more.
#
#   built.sh PACKAGE TARGET      the test, example or program of that name, or the tests of the library of that name
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Examples: those that tests run, as in test.py.
wanted=(--lib --bins --tests --example third_party --example onnx)
# shellcheck disable=SC2046
cargo test --quiet --workspace "${wanted[@]}" $(scripts/features.sh) --profile tested --locked --no-run --message-format=json | python3 -c '
import json, sys
package, name = sys.argv[1:]
found = []
for line in sys.stdin:
    one = json.loads(line)
    path = one.get("executable")
    if path and one["package_id"].split("#")[-1].split("@")[0] == package:
        target = one["target"]
        # Of a program there are its own tests too, of a library nothing else.
        if target["name"] == name and not ("bin" in target["kind"] and one["profile"]["test"]):
            found.append(path)
if len(found) != 1:
    sys.exit(f"{package} has {len(found)} of {name}")
print(found[0])
' "$1" "$2"
