//! Report that the firmware and the host compute from the same source, so that the lines are equal if the arithmetic
//! is.

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

/// Prints the whole report of the firmware, one section after the other, to `out`.
///
/// # Errors
/// Errors of `out`.
pub fn print(out: &mut impl Write) -> fmt::Result {
    walk::print(out)?;
    casts::print(out)?;
    rows::print(out)?;
    decisions::print(out)?;
    schedules::print(out)?;
    operators::print(out)
}
