//! Operators: each file turns a descriptor into calls of kernels.

mod binary;
mod conv;
pub(crate) mod coop;
mod copy;
mod cross_entropy;
mod ctc;
mod gemm;
mod global_norm;
mod list;
mod norm;
mod optimize;
mod pool;
mod product;
mod reduce;
mod roi_align;
mod roi_pool;
mod rows;
mod split;
mod stream;
mod sum;
mod unary;
