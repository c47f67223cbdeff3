//! Small commands that print.

pub mod completions;
pub mod devices;
pub mod inspect;
pub mod plan;
