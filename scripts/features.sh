#!/usr/bin/env bash
# Prints the features of the workspace's test builds besides the default ones: MPI, where it can be built. All builds in
# the profile `tested` use them, so that nothing is built twice.
set -euo pipefail
has() {
    compgen -G '/usr/lib/llvm-*/lib/libclang*.so*' >/dev/null &&
        echo '#include <mpi.h>' | mpicc -x c -fsyntax-only - 2>/dev/null
}
if has; then echo --features=gradscale-cli/mpi; fi
