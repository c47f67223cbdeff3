#!/usr/bin/env bash
# Prints the packages of the test builds: all but those without a test of Rust, whose libraries and programs no test uses
# as these builds would make them. They would bring many dependencies. The lints compile all packages; python/test.sh and
# npm/test.sh build their modules themselves, and `web/test.sh --all` and `scripts/starter.sh --all` build programs.
set -euo pipefail
without=(gradscale-{core-benches,cpu-benches,npm,python,starter,web-bindgen})
echo --workspace "${without[@]/#/--exclude=}"
