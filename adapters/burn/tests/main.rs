//! Everything in one binary: burn takes long to link.

mod gradients;
#[path = "../../common/tests/numbers.rs"]
mod numbers;
mod steps;
mod tensors;
mod towers;
