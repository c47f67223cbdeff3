//! All-reduce of gradients by the devices of several ranks.

use core::fmt;

/// Unique identifier that rank 0 sends to the others so that their devices form one group. The content is defined by
/// the device's collective library.
pub type UniqueId = [u8; 128];

/// Phases of a gradient all-reduce on devices ([`super::Backend::grad_reduce`]): allocate the sums, add the gradient of each
/// parameter in each micro-batch, compute the mean over all ranks, and write it to each parameter.
pub enum GradReduce<'a, Buffer> {
    /// Allocates sums of `len` values, all zero, for `parts` micro-batches of all ranks. `exact`: gradients are added
    /// as halves, exactly, and rounded once; otherwise they are added in f32.
    Init {
        /// Number of gradient values of all parameters together.
        len: usize,
        /// Number of micro-batches of all ranks together.
        parts: u32,
        /// True if the result must have the same bits for any number of ranks.
        exact: bool,
    },
    /// Adds `len` F32 values to the sums from index `at` on. Each value is rounded to a half, to nearest even, times
    /// 2^`exponent` (all zeros if there is no exponent), or divided by the number of micro-batches. If an exact sum has
    /// as many micro-batches as ranks, each index receives one addition.
    Accumulate {
        /// Index in the sums of the first value to add.
        at: usize,
        /// Number of gradient values that are added.
        len: usize,
        /// Gradient of one parameter to add to the sums.
        values: &'a Buffer,
        /// Exponent at which the gradient is rounded to halves.
        exponent: Option<i32>,
    },
    /// Computes the mean over the micro-batches of all ranks. Waits for the device.
    AllReduceMean,
    /// Writes `len` mean gradients as F32, times 2^-`exponent` if they are exact.
    Read {
        /// Index in the sums of the first mean to write.
        at: usize,
        /// Number of mean gradient values to write.
        len: usize,
        /// Destination of one parameter's mean gradient.
        values: &'a mut Buffer,
        /// Exponent at which the gradients were rounded to halves.
        exponent: i32,
    },
}

impl<Buffer> fmt::Debug for GradReduce<'_, Buffer> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Init { len, parts, exact } => write!(f, "Init({len} values, {parts} parts, exact: {exact})"),
            Self::Accumulate { at, len, exponent, .. } => write!(f, "Accumulate({len} at {at}, 2^{exponent:?})"),
            Self::AllReduceMean => f.write_str("AllReduceMean"),
            Self::Read { at, len, exponent, .. } => write!(f, "Read({len} at {at}, 2^{exponent})"),
        }
    }
}
