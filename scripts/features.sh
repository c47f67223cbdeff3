#!/usr/bin/env bash
# Prints what the workspace's tests are built with beside their usual features: MPI, where it can be built. All that builds
# programs in the profile `tested` says the same, so that nothing is built twice.
set -euo pipefail
has() {
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null &&
        echo '#include <mpi.h>' | mpicc -x c -fsyntax-only - 2>/dev/null
}
if has; then echo --features=gradscale-cli/mpi; fi
