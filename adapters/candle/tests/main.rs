//! All tests are in one binary, which links once.

mod gradients;
#[path = "../../common/tests/numbers.rs"]
mod numbers;
#[path = "../../common/tests/points.rs"]
mod points;
mod steps;
mod tensors;
mod towers;
#[path = "../../common/tests/twin.rs"]
mod twin;
