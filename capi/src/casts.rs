//! Casts of slices, and rescaling of slices.

use crate::{
    memory::{Plain, in_place, read, slice, slice_apart, write_if},
    status::{
        answer, format,
        gs_status::{self, GS_ERROR_ENUM, GS_ERROR_RANDOM},
    },
};
use gradscale_core::{
    cast::{Round, Tally, encode_slice, encode_slice_stochastic},
    format::Format,
    scale::Factor,
};

/// Rounding mode: the choice between two neighbours of a number that is not representable.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_round {
    /// To the nearest; of two equally near, to the one with an even last bit.
    GS_ROUND_NEAREST_EVEN = 0,
    /// To the smaller magnitude; too large becomes the largest finite number.
    GS_ROUND_TOWARD_ZERO = 1,
    /// Up in magnitude with a probability equal to the discarded fraction, by one random number for each element.
    GS_ROUND_STOCHASTIC = 2,
}

/// Number of elements of a slice by the result of their cast.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct gs_cast_counts {
    /// Number of elements whose value was representable, so that it did not change.
    pub exact: u64,
    /// Number of elements that were rounded to another value.
    pub inexact: u64,
    /// Number of non-zero elements that became zero.
    pub underflow: u64,
    /// Number of elements that were too large for the format.
    pub overflow: u64,
    /// Number of signalling NaNs, and of infinities if the format has none.
    pub invalid: u64,
}

// SAFETY: integers.
unsafe impl Plain for gs_cast_counts {}

impl From<Tally> for gs_cast_counts {
    fn from(Tally { exact, inexact, underflow, overflow, invalid }: Tally) -> Self {
        Self { exact, inexact, underflow, overflow, invalid }
    }
}

/// Integer type that holds bit patterns.
trait Word: Plain {
    fn encode(format: Format, x: &[f32], y: &mut [Self], round: Round) -> Result<Tally, gs_status>;
    fn encode_stochastic(format: Format, x: &[f32], y: &mut [Self], random: &[u32]) -> Result<Tally, gs_status>;
    const WIDTH: u32;
    fn bits(self) -> u32;
}

macro_rules! word {
    ($type:ty) => {
        impl Word for $type {
            fn encode(format: Format, x: &[f32], y: &mut [Self], round: Round) -> Result<Tally, gs_status> {
                Ok(encode_slice(format, x, y, round)?)
            }

            fn encode_stochastic(
                format: Format, x: &[f32], y: &mut [Self], random: &[u32],
            ) -> Result<Tally, gs_status> {
                let mut random = random.iter().copied();
                Ok(encode_slice_stochastic(format, x, y, || random.next().unwrap_or(0))?)
            }

            const WIDTH: u32 = Self::BITS;

            fn bits(self) -> u32 {
                u32::from(self)
            }
        }
    };
}
word!(u8);
word!(u16);

/// # Safety
/// As for the functions below.
unsafe fn encode<W: Word>(
    number: u32, x: *const f32, y: *mut W, count: usize, round: u32, random: *const u32, counts: *mut gs_cast_counts,
) -> gs_status {
    answer(|| {
        let format = format(number)?;
        if format.width() != W::WIDTH {
            return Err(gs_status::GS_ERROR_FORMAT);
        }
        // SAFETY: promised by the caller.
        let (x, y) = unsafe {
            let x = slice(x, count)?;
            (x, slice_apart(y, count, x)?)
        };
        let done = match round {
            n if n == gs_round::GS_ROUND_NEAREST_EVEN as u32 => W::encode(format, x, y, Round::NearestEven)?,
            n if n == gs_round::GS_ROUND_TOWARD_ZERO as u32 => W::encode(format, x, y, Round::TowardZero)?,
            n if n == gs_round::GS_ROUND_STOCHASTIC as u32 => {
                if random.is_null() && count > 0 {
                    return Err(GS_ERROR_RANDOM);
                }
                // SAFETY: promised by the caller.
                let random = unsafe { slice(random, count)? };
                // The destination must not overlap the random numbers either.
                // SAFETY: promised by the caller.
                let y = unsafe { slice_apart(y.as_mut_ptr(), count, random)? };
                W::encode_stochastic(format, x, y, random)?
            }
            _ => return Err(GS_ERROR_ENUM),
        };
        // SAFETY: promised by the caller.
        unsafe { write_if(counts, done.into()) }
    })
}

/// # Safety
/// As for the functions below.
unsafe fn decode<W: Word>(number: u32, x: *const W, y: *mut f32, count: usize) -> gs_status {
    answer(|| {
        let format = format(number)?;
        if format.width() != W::WIDTH {
            return Err(gs_status::GS_ERROR_FORMAT);
        }
        // SAFETY: promised by the caller.
        let (x, y) = unsafe {
            let x = slice(x, count)?;
            (x, slice_apart(y, count, x)?)
        };
        for (y, x) in y.iter_mut().zip(x) {
            *y = format.decode(x.bits());
        }
        Ok(())
    })
}

/// Rounds count numbers to GS_FP16 or GS_BF16 and writes their bit patterns. random has a number for each element if
/// round is GS_ROUND_STOCHASTIC; otherwise it may be NULL. counts may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_encode16(
    format: u32, x: *const f32, y: *mut u16, count: usize, round: u32, random: *const u32, counts: *mut gs_cast_counts,
) -> gs_status {
    // SAFETY: promised by the caller.
    unsafe { encode(format, x, y, count, round, random, counts) }
}

/// Rounds count numbers to one of the 8-bit formats, otherwise like gs_encode16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_encode8(
    format: u32, x: *const f32, y: *mut u8, count: usize, round: u32, random: *const u32, counts: *mut gs_cast_counts,
) -> gs_status {
    // SAFETY: promised by the caller.
    unsafe { encode(format, x, y, count, round, random, counts) }
}

/// Converts count bit patterns of GS_FP16 or GS_BF16 to floats, exactly.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_decode16(format: u32, x: *const u16, y: *mut f32, count: usize) -> gs_status {
    // SAFETY: promised by the caller.
    unsafe { decode(format, x, y, count) }
}

/// Converts count bit patterns of one of the 8-bit formats to floats, exactly.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_decode8(format: u32, x: *const u8, y: *mut f32, count: usize) -> gs_status {
    // SAFETY: promised by the caller.
    unsafe { decode(format, x, y, count) }
}

/// Computes y = x * 2^(to_exponent - from_exponent), rounded once, even if that power is far outside the range of
/// floats. It rescales values to to_exponent (0 for a parameter's gradient). x and y may be the same; otherwise they
/// must not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_rescale(
    x: *const f32, y: *mut f32, count: usize, from_exponent: i32, to_exponent: i32,
) -> gs_status {
    answer(|| {
        let factor = Factor::between(from_exponent, to_exponent);
        if in_place(x, y) {
            // SAFETY: promised by the caller; there is no other slice that could overlap.
            let y = unsafe { slice_apart::<f32, f32>(y, count, &[])? };
            y.iter_mut().for_each(|y| *y = factor.apply(*y));
            return Ok(());
        }
        // SAFETY: promised by the caller.
        let (x, y) = unsafe {
            let x = slice(x, count)?;
            (x, slice_apart(y, count, x)?)
        };
        for (y, &x) in y.iter_mut().zip(x) {
            *y = factor.apply(x);
        }
        Ok(())
    })
}

/// Reads an optional value; NULL means that there is none.
///
/// # Safety
/// As for [`read`].
pub(crate) unsafe fn read_if<T: Plain>(from: *const T) -> Result<Option<T>, gs_status> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: promised by the caller.
    unsafe { read(from) }.map(Some)
}
