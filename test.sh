#!/usr/bin/env bash
# Tests everything that this machine can test.
#
#   ./test.sh            changes nothing on the machine; says what it left out, and how to get it
#   ./test.sh --install  first installs what can be had (packages: as root), then the same
#   ./test.sh --quick    after a small change: the engine, the program and the CPU, with few inputs
#   ./test.sh --all      everything, exhaustively: hours; with --install too
#   ./test.sh --record   writes the table of times into docs/test-times.md; with the others too
#   ./test.sh --all --only=mutants  what has that word in its name in the table, alone; with the others too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
for argument in "$@"; do
    case "$argument" in
    --install | --quick | --all | --record | --only=?*) ;;
    *)
        echo "usage: ./test.sh [--install] [--quick | --all] [--record] [--only=WORD]" >&2
        exit 2
        ;;
    esac
done
command -v python3 >/dev/null || { echo "test.sh needs python3 (3.9 or newer)" >&2; exit 2; }
exec python3 scripts/test.py "$@"
