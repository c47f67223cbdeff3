//! Operators: each file turns a descriptor into calls of kernels.

mod copy;
mod unary;
