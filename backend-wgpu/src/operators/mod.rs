//! Operators: each file turns a descriptor into calls of kernels.

mod conv;
mod copy;
mod gemm;
mod pool;
mod product;
mod unary;
