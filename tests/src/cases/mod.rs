//! The cases, by operator: the first part of a name is the operator that it tests.

mod cast;
mod memory;
mod record;
mod store;
mod table;
mod unary;

use crate::case::Case;
use gradscale_core::backend::Backend;

/// Every case.
#[must_use]
pub fn suite<B: Backend + 'static>() -> Vec<Case<B>> {
    let mut cases = Vec::new();
    memory::cases(&mut cases);
    table::cases(&mut cases);
    store::cases(&mut cases);
    cast::cases(&mut cases);
    unary::cases(&mut cases);
    record::cases(&mut cases);
    cases
}

/// All operators by the first parts of case names, but for `record`: a list of what must be supported, for backends
/// that support everything.
pub const OPERATORS: &[&str] = &[
    "memory",
    "table",
    "store",
    "cast",
    "unary",
    "binary",
    "sum",
    "reduce",
    "copy",
    "gemm",
    "conv",
    "pool",
    "unpool",
    "rows",
    "norm",
    "norm_vjp",
    "xent",
    "xent_vjp",
    "global_norm",
    "optimize",
];
