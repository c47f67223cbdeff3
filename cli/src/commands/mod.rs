//! Small commands that print.

pub mod devices;
pub mod inspect;
pub mod plan;
