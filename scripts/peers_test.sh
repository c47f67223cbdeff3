#!/usr/bin/env bash
# Tests PyTorch's side of the CUDA benchmark (backend-cuda/benches/cuda/peers.py, networks.py) on the CPU.
#
#   scripts/peers_test.sh          uses the Python of python/test.sh --fetch, else python3; says so where it lacks torch
#   scripts/peers_test.sh --fetch  does nothing: python/test.sh --fetch installs torch
#
# The last line starts with PASSED, FAILED (exit status 1) or SKIPPED.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ "${1-}" != --fetch ]] || exit 0
python=${PYTHON:-target/python-package/bin/python}
[[ -x "$python" ]] || python=python3
"$python" -c 'import torch' 2>/dev/null || { echo "SKIPPED: needs torch; python/test.sh --install" && exit 0; }
PYTHONDONTWRITEBYTECODE=1 exec "$python" backend-cuda/benches/cuda/peers_test.py
