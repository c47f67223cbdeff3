//! Operators: each file converts a descriptor to launches of kernels.

mod binary;
mod conv;
mod coop;
mod copy;
mod cross_entropy;
mod ctc;
mod gemm;
mod global_norm;
mod loader;
mod lstm;
mod multi_tensor;
mod norm;
mod optimize;
mod parallel_reduce;
mod pool;
pub(crate) mod product;
mod reduce;
mod roi_align;
mod roi_pool;
mod round_blocks;
mod rows;
mod softmax;
mod stream;
mod sum;
mod tiled_gemm;
mod unary;
