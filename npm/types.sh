#!/usr/bin/env bash
# Writes types/ anew from the comments of js/. Needs TypeScript, which `test.sh --install` fetches into the target folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
. ../scripts/shared.sh
tsc=$(target_folder)/npm-tools/node_modules/.bin/tsc
[ -x "$tsc" ] || { echo "types.sh needs TypeScript: npm/test.sh --install" >&2; exit 2; }
rm -rf types
"$tsc" --project . --outDir types
