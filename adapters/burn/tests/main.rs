//! Everything in one binary: burn takes long to link.

mod gradients;
mod numbers;
mod steps;
mod towers;
