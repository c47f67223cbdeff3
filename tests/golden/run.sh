#!/usr/bin/env bash
# Computes all golden values again by independent software: PyTorch, torchvision and the other packages that the scripts
# here and in core/tests/golden import.
#
#   run.sh           with the Python that PYTHON names (python3); says which scripts it cannot run, and what they lack
#   run.sh --fetch   nothing: it takes gigabytes; pip install torch torchvision safetensors numpy …
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
case "${1-}" in
"") ;;
--fetch) exit 0 ;;
*)
    echo "usage: run.sh [--fetch]" >&2
    exit 2
    ;;
esac
python=${PYTHON:-python3}
failed=() skipped=() passed=0
for script in tests/golden/*.py core/tests/golden/*.py; do
    if ! lacks=$("$python" - "$script" 2>&1 <<'PYTHON'
import ast, importlib.util, sys
names = set()
for node in ast.walk(ast.parse(open(sys.argv[1]).read())):
    if isinstance(node, ast.Import):
        names |= {alias.name.split(".")[0] for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.level == 0:
        names.add(node.module.split(".")[0])
sys.path.insert(0, sys.argv[1].rsplit("/", 1)[0])
lacks = sorted(name for name in names if importlib.util.find_spec(name) is None)
print(" ".join(lacks))
sys.exit(1 if lacks else 0)
PYTHON
    ); then
        skipped+=("$script lacks $lacks")
        continue
    fi
    echo "-- $script"
    if "$python" "$script" --check; then passed=$((passed + 1)); else failed+=("$script"); fi
done
for one in "${skipped[@]}"; do echo "skipped: $one"; done
if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
    exit 1
fi
[ "$passed" -gt 0 ] && echo "PASSED: $passed scripts" || echo "SKIPPED: no script could run"
