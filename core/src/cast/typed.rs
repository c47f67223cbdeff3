//! Casts to and from the types of the `half` crate. The crate's own conversions are not used, because `f16::from_f64`
//! rounds twice: for example, 1 + 2^-11 + 2^-40 becomes 1.

use super::{Round, SliceError, Tally, encode_slice};
use crate::format::Format;
use half::{bf16, f16, slice::HalfFloatSliceExt};

/// Rounds an f32 to binary16, like [`Format::encode`].
///
/// ```
/// use gradscale_core::cast::{Round, f16_from_f32};
/// assert_eq!(f16_from_f32(65519.0, Round::NearestEven).to_f32(), 65504.0);
/// assert!(f16_from_f32(65520.0, Round::NearestEven).is_infinite());
/// ```
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a 16-bit pattern")]
pub fn f16_from_f32(x: f32, round: Round) -> f16 {
    f16::from_bits(Format::FP16.encode(x, round).bits as u16)
}

/// Rounds an f64 to binary16 in one step, like [`Format::encode_f64`].
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a 16-bit pattern")]
pub fn f16_from_f64(x: f64, round: Round) -> f16 {
    f16::from_bits(Format::FP16.encode_f64(x, round).bits as u16)
}

/// Rounds an f32 to bfloat16, like [`Format::encode`].
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a 16-bit pattern")]
pub fn bf16_from_f32(x: f32, round: Round) -> bf16 {
    bf16::from_bits(Format::BF16.encode(x, round).bits as u16)
}

/// Rounds an f64 to bfloat16 in one step, like [`Format::encode_f64`].
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a 16-bit pattern")]
pub fn bf16_from_f64(x: f64, round: Round) -> bf16 {
    bf16::from_bits(Format::BF16.encode_f64(x, round).bits as u16)
}

/// Rounds each element of `src` to binary16; see [`encode_slice`].
///
/// # Errors
/// [`SliceError::Length`] if the lengths differ; nothing is written then.
pub fn f16_slice_from_f32(src: &[f32], dst: &mut [f16], round: Round) -> Result<Tally, SliceError> {
    encode_slice(Format::FP16, src, dst.reinterpret_cast_mut(), round)
}

/// Rounds each element of `src` to bfloat16; see [`encode_slice`].
///
/// # Errors
/// [`SliceError::Length`] if the lengths differ; nothing is written then.
pub fn bf16_slice_from_f32(src: &[f32], dst: &mut [bf16], round: Round) -> Result<Tally, SliceError> {
    encode_slice(Format::BF16, src, dst.reinterpret_cast_mut(), round)
}

/// Converts each binary16 element of `src` to f32, exactly. A NaN becomes quiet.
///
/// # Errors
/// [`SliceError::Length`] if the lengths differ; nothing is written then.
pub fn f16_slice_to_f32(src: &[f16], dst: &mut [f32]) -> Result<(), SliceError> {
    super::slice::same_length(src.len(), dst.len())?;
    for (&x, y) in src.iter().zip(dst) {
        *y = Format::FP16.decode(u32::from(x.to_bits()));
    }
    Ok(())
}
