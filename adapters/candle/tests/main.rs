//! Everything in one binary, which links once.

mod gradients;
#[path = "../../common/tests/numbers.rs"]
mod numbers;
mod steps;
mod tensors;
mod towers;
