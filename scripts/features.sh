#!/usr/bin/env bash
# Prints what the workspace's tests are built with beside their usual features: MPI, where it can be built. All that builds
# programs in the profile `tested` says the same, so that nothing is built twice.
set -euo pipefail
has() { command -v mpicc >/dev/null && compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null; }
if has; then echo --features=gradscale-cli/mpi; fi
