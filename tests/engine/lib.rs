//! Tests of the engine are in `tests/`; each folder or file is a program. They form a package of their own, so that
//! they are built without optimisation: each program instantiates the engine for its device, which takes longer to
//! optimise than to run. Kernels and the suite's definitions are optimised, because they do the computing.
