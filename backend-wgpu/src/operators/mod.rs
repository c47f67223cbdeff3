//! Operators: each file turns a descriptor into calls of kernels.

mod binary;
mod conv;
pub(crate) mod coop;
mod copy;
mod gemm;
mod global_norm;
mod norm;
mod optimize;
mod pool;
mod product;
mod reduce;
mod rows;
mod split;
mod sum;
mod unary;
mod xent;
