//! Gradients of several ranks, added up by their devices themselves.

use core::fmt;

/// What rank 0 tells the others so that their devices find its own: whatever a device's library says there.
pub type Invitation = [u8; 128];

/// A part of adding up the gradients of ranks on their devices ([`super::Backend::wire`]): room is made, each parameter's
/// gradient of each part of a step is added, their mean is formed once, and each parameter takes its own.
pub enum Wire<'a, Buffer> {
    /// Room for so many values, all zeros; `parts` of all ranks will come. `exact`: as halves, added exactly and rounded once;
    /// else in f32.
    Begin {
        /// Values of all parameters.
        len: usize,
        /// Parts of all ranks.
        parts: u32,
        /// Whether the bits are those of any number of ranks.
        exact: bool,
    },
    /// Adds so many F32 values, the first of which has the place `at`: each rounded to a half, to nearest even, times
    /// 2^`exponent` (zeros without one); or divided by the number of parts. Of an exact sum whose parts are as many as the
    /// ranks, each place is added to once.
    Add {
        /// Place of the first.
        at: usize,
        /// How many.
        len: usize,
        /// The gradient.
        values: &'a Buffer,
        /// At which it is rounded.
        exponent: Option<i32>,
    },
    /// The mean of all parts of all ranks. Waits.
    Mean,
    /// Writes so many means as F32, times 2^-`exponent` if they are exact.
    Take {
        /// Place of the first.
        at: usize,
        /// How many.
        len: usize,
        /// Where they go.
        values: &'a mut Buffer,
        /// At which they were rounded.
        exponent: i32,
    },
}

impl<Buffer> fmt::Debug for Wire<'_, Buffer> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { len, parts, exact } => write!(f, "Begin({len} values, {parts} parts, exact: {exact})"),
            Self::Add { at, len, exponent, .. } => write!(f, "Add({len} at {at}, 2^{exponent:?})"),
            Self::Mean => f.write_str("Mean"),
            Self::Take { at, len, exponent, .. } => write!(f, "Take({len} at {at}, 2^{exponent})"),
        }
    }
}
