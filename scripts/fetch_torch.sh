#!/usr/bin/env bash
# Installs PyTorch from PyPI into an environment of Python. Its wheel for Linux requires CUDA's libraries, which are ten
# times as large as its CPU part, so only the dependencies of the CPU part are installed.
#
#   fetch_torch.sh ENVIRONMENT
set -euo pipefail
environment=${1:?a folder with an environment of Python}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pip=("$environment/bin/pip" install --quiet --disable-pip-version-check --no-warn-conflicts)
if [ "$(uname -s)" != Linux ]; then
    timeout 600 "${pip[@]}" torch
    exit
fi
timeout 600 "${pip[@]}" --no-deps torch
timeout 300 "${pip[@]}" filelock typing-extensions 'setuptools>=77' 'sympy>=1.13.3' 'networkx>=2.5.1' jinja2 'fsspec>=0.8.5'
"$environment/bin/python" "$root/python/tests/cpu_torch.py" \
    "$("$environment/bin/python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')"
"$environment/bin/python" -c 'import torch'
