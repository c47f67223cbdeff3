//! Casts of whole slices, with a count of each status.

use super::{Cast, Round, Status};
use crate::format::Format;
use core::fmt;
use num_traits::{PrimInt, Unsigned};

/// Counts of the elements of a slice, by the [`Status`] of their cast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of elements that the cast did not change.
    pub exact: u64,
    /// Number of elements that the cast rounded.
    pub inexact: u64,
    /// Number of non-zero elements that the cast turned into ±0.
    pub underflow: u64,
    /// Number of elements that overflowed in the cast.
    pub overflow: u64,
    /// Number of signalling NaNs, and of ±∞ in formats without ∞.
    pub invalid: u64,
}

/// Reason why the cast of a slice is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SliceError {
    /// Source and destination slice differ in length.
    Length {
        /// Number of elements of the source slice.
        src: usize,
        /// Number of elements of the destination slice.
        dst: usize,
    },
    /// A bit pattern of the format does not fit the destination's type.
    Width {
        /// Width in bits of the number format.
        format: u32,
        /// Width in bits of the destination's integer type.
        word: u32,
    },
}

impl fmt::Display for SliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { src, dst } => write!(f, "{src} elements do not fit a destination of {dst}"),
            Self::Width { format, word } => write!(f, "patterns of {format} bits do not fit words of {word} bits"),
        }
    }
}

impl core::error::Error for SliceError {}

pub(super) fn same_length(src: usize, dst: usize) -> Result<(), SliceError> {
    if src == dst { Ok(()) } else { Err(SliceError::Length { src, dst }) }
}

/// Rounds each element of `src` to `format` and writes its bit pattern to `dst` (u8 for the 8-bit formats, u16 for the
/// halves, u32 for binary32). Empty slices are allowed. With [`Round::Stochastic`] every element uses the same random
/// number; use [`encode_slice_stochastic`] instead.
///
/// # Errors
/// [`SliceError`] if the lengths differ or bit patterns do not fit; nothing is written then.
///
/// ```
/// use gradscale_core::{cast::{Round, encode_slice}, format::Format};
/// let mut y = [0u8; 3];
/// let tally = encode_slice(Format::E4M3, &[1.0, 1e-9, 500.0], &mut y, Round::NearestEven)?;
/// assert_eq!(y, [0x38, 0x00, 0x7F]);
/// assert_eq!((tally.exact, tally.underflow, tally.overflow), (1, 1, 1));
/// # Ok::<(), gradscale_core::cast::SliceError>(())
/// ```
#[inline]
pub fn encode_slice<W: PrimInt + Unsigned>(
    format: Format, src: &[f32], dst: &mut [W], round: Round,
) -> Result<Tally, SliceError> {
    // One loop for each rounding mode, so that no loop contains a branch on it.
    match round {
        Round::NearestEven => encode_each(format, src, dst, || Round::NearestEven),
        Round::TowardZero => encode_each(format, src, dst, || Round::TowardZero),
        Round::Stochastic(random) => encode_each(format, src, dst, || Round::Stochastic(random)),
    }
}

/// Rounds a slice like [`encode_slice`], stochastically with one number of `random` for each element, in order.
///
/// # Errors
/// See [`encode_slice`].
#[inline]
pub fn encode_slice_stochastic<W: PrimInt + Unsigned>(
    format: Format, src: &[f32], dst: &mut [W], mut random: impl FnMut() -> u32,
) -> Result<Tally, SliceError> {
    encode_each(format, src, dst, || Round::Stochastic(random()))
}

#[inline(always)]
fn encode_each<W: PrimInt + Unsigned>(
    format: Format, src: &[f32], dst: &mut [W], mut round: impl FnMut() -> Round,
) -> Result<Tally, SliceError> {
    same_length(src.len(), dst.len())?;
    let word = W::zero().count_zeros();
    if format.width() > word {
        return Err(SliceError::Width { format: format.width(), word });
    }
    // The counts are computed without branches, because the status of one element does not predict the next. usize
    // suffices for the counts of a slice.
    let (mut inexact, mut underflow, mut overflow, mut invalid) = (0usize, 0usize, 0usize, 0usize);
    for (&x, y) in src.iter().zip(dst) {
        let Cast { bits, status } = format.encode(x, round());
        // The width was checked above.
        *y = num_traits::cast(bits).unwrap_or_else(W::max_value);
        inexact += usize::from(status == Status::Inexact);
        underflow += usize::from(status == Status::Underflow);
        overflow += usize::from(status == Status::Overflow);
        invalid += usize::from(status == Status::Invalid);
    }
    Ok(Tally {
        exact: (src.len() - inexact - underflow - overflow - invalid) as u64,
        inexact: inexact as u64,
        underflow: underflow as u64,
        overflow: overflow as u64,
        invalid: invalid as u64,
    })
}
