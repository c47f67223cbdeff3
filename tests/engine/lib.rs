//! Tests of the engine stand in `tests/`, each folder or file a program. They are a package of their own so that they are built
//! without optimisation: each program makes the engine anew for its device, which takes longer to optimise than to run. What
//! computes, kernels and the suite's definitions, is optimised as everywhere.
