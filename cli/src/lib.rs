//! The parts of the `gradscale` program.

#![forbid(unsafe_code)]

pub mod data;
pub mod metrics;
