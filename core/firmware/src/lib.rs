//! What the firmware computes and the host computes again: the same source, so the same lines if the arithmetic
//! is the same.

#![no_std]
#![forbid(unsafe_code)]

pub mod casts;
pub mod decisions;
pub mod hash;
pub mod inputs;
pub mod operators;
pub mod probes;
pub mod rows;
pub mod schedules;
pub mod walk;

use core::fmt::{self, Write};

/// Prints all lines.
///
/// # Errors
/// Those of `out`.
pub fn print(out: &mut impl Write) -> fmt::Result {
    walk::print(out)?;
    casts::print(out)?;
    rows::print(out)?;
    decisions::print(out)?;
    schedules::print(out)?;
    operators::print(out)
}
