//! The cases, by operator: the first part of a name is the operator that it tests.

mod attention;
mod attention_vjp;
mod binary;
mod cast;
mod cell;
mod conv;
mod convolution;
mod copy;
mod cross_entropy;
mod cross_entropy_vjp;
mod ctc;
mod gemm;
mod global_norm;
mod gru;
mod lstm;
mod memory;
mod norm;
mod norm_vjp;
mod optimize;
mod optimize_guard;
mod pack;
mod pool;
mod product;
mod record;
mod reduce;
mod roi_align;
mod roi_pool;
mod round;
mod round_blocks;
mod rows;
mod shared;
mod softmax;
mod softmax_vjp;
mod store;
mod sum;
mod table;
mod unary;
mod unpool;

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
    round::cases(&mut cases);
    round_blocks::cases(&mut cases);
    pack::cases(&mut cases);
    binary::cases(&mut cases);
    copy::cases(&mut cases);
    pool::cases(&mut cases);
    unpool::cases(&mut cases);
    rows::cases(&mut cases);
    roi_align::cases(&mut cases);
    roi_pool::cases(&mut cases);
    norm::cases(&mut cases);
    norm_vjp::cases(&mut cases);
    softmax::cases(&mut cases);
    softmax_vjp::cases(&mut cases);
    attention::cases(&mut cases);
    attention_vjp::cases(&mut cases);
    lstm::cases(&mut cases);
    gru::cases(&mut cases);
    cross_entropy::cases(&mut cases);
    cross_entropy_vjp::cases(&mut cases);
    ctc::cases(&mut cases);
    global_norm::cases(&mut cases);
    optimize::cases(&mut cases);
    optimize_guard::cases(&mut cases);
    record::cases(&mut cases);
    sum::cases(&mut cases);
    reduce::cases(&mut cases);
    gemm::cases(&mut cases);
    conv::cases(&mut cases);
    cases
}

/// All operators except `record` and those of [`ATTENTION`], by the first parts of case names. Backends that support
/// everything pass this list as the required operators.
pub const OPERATORS: &[&str] = &[
    "memory",
    "table",
    "store",
    "cast",
    "unary",
    "round",
    "round_blocks",
    "pack",
    "unpack",
    "binary",
    "sum",
    "reduce",
    "copy",
    "gemm",
    "conv",
    "pool",
    "unpool",
    "rows",
    "roi_align",
    "roi_pool",
    "norm",
    "norm_vjp",
    "softmax",
    "softmax_vjp",
    "lstm",
    "lstm_vjp",
    "gru",
    "gru_vjp",
    "cross_entropy",
    "cross_entropy_vjp",
    "ctc",
    "global_norm",
    "optimize",
];

/// Operators that only backends need whose [`Backend::fuses_attention`] is true. They pass this list with [`OPERATORS`] as
/// the required operators.
pub const ATTENTION: &[&str] = &["attention", "attention_vjp"];
