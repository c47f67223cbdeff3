//! Casts of NumPy arrays to any format, and back.

use crate::{device::cpu, words, wrong};
use gradscale_core::{
    cast::{Cast, Round, Status},
    format::Format,
    ops::{At, hash},
    scale::{Factor, step},
};
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::{exceptions::PyTypeError, prelude::*};

/// Number of elements that a thread casts at a time.
const CHUNK: usize = 1 << 14;

/// NumPy array of the numbers to be rounded.
#[derive(Debug, FromPyObject)]
pub enum Numbers<'py> {
    F32(PyReadonlyArray1<'py, f32>),
    F64(PyReadonlyArray1<'py, f64>),
}

/// NumPy array to which bit patterns are written, as wide as the format.
#[derive(Debug, FromPyObject)]
pub enum Patterns<'py> {
    U8(PyReadwriteArray1<'py, u8>),
    U16(PyReadwriteArray1<'py, u16>),
    U32(PyReadwriteArray1<'py, u32>),
}

/// NumPy array of bit patterns to be decoded, as wide as the format.
#[derive(Debug, FromPyObject)]
pub enum Read<'py> {
    U8(PyReadonlyArray1<'py, u8>),
    U16(PyReadonlyArray1<'py, u16>),
    U32(PyReadonlyArray1<'py, u32>),
}

/// Settings of a cast: target format, rounding mode, seed of stochastic rounding, and exponent of the scale.
#[derive(Clone, Copy)]
struct Rounding {
    format: Format,
    round: Round,
    seed: u64,
    exponent: i32,
}

impl Rounding {
    fn round_at(self, index: usize) -> Round {
        match self.round {
            Round::Stochastic(_) => {
                #[expect(clippy::cast_possible_truncation, reason = "the halves of an index, each where it belongs")]
                let (index, stream) = (index as u32, ((index as u64) >> 32) as u32);
                Round::Stochastic(hash(At { seed: self.seed, index }, stream))
            }
            Round::NearestEven | Round::TowardZero => self.round,
        }
    }

    fn cast_f32(self, x: f32, index: usize) -> Cast {
        self.format.encode(Factor::between(0, self.exponent).apply(x), self.round_at(index))
    }

    fn cast_f64(self, x: f64, index: usize) -> Cast {
        // 2^k as two factors, because k can exceed f32's range. The product is exact unless the result underflows every
        // format.
        let k = step(0, self.exponent);
        self.format.encode_f64(x * 2f64.powi(k / 2) * 2f64.powi(k - k / 2), self.round_at(index))
    }
}

/// Number of elements by cast status: exact, inexact, underflow, overflow, invalid.
type Tally = [u64; 5];

fn each<T: Sync + Copy, W: Send>(
    x: &[T], y: &mut [W], cast: impl Fn(T, usize) -> Cast + Sync, word: impl Fn(u32) -> W + Sync,
) -> PyResult<Tally> {
    let work = |start: usize, x: &[T], y: &mut [W]| {
        let mut tally = [0; 5];
        for (i, (&x, y)) in x.iter().zip(y).enumerate() {
            let Cast { bits, status } = cast(x, start + i);
            *y = word(bits);
            tally[match status {
                Status::Exact => 0,
                Status::Inexact => 1,
                Status::Underflow => 2,
                Status::Overflow => 3,
                Status::Invalid => 4,
            }] += 1;
        }
        tally
    };
    let tallies = cpu()?.par_chunks(x, y, CHUNK, work);
    Ok(tallies.into_iter().fold([0; 5], |mut all, tally| {
        all.iter_mut().zip(tally).for_each(|(all, count)| *all += count);
        all
    }))
}

#[expect(clippy::cast_possible_truncation, reason = "the format's width was looked at before")]
fn into<T: Sync + Copy>(x: &[T], y: &mut PatternsMut<'_>, cast: impl Fn(T, usize) -> Cast + Sync) -> PyResult<Tally> {
    match y {
        PatternsMut::U8(y) => each(x, y, cast, |bits| bits as u8),
        PatternsMut::U16(y) => each(x, y, cast, |bits| bits as u16),
        PatternsMut::U32(y) => each(x, y, cast, |bits| bits),
    }
}

enum PatternsMut<'a> {
    U8(&'a mut [u8]),
    U16(&'a mut [u16]),
    U32(&'a mut [u32]),
}

impl PatternsMut<'_> {
    const fn len(&self) -> usize {
        match self {
            Self::U8(y) => y.len(),
            Self::U16(y) => y.len(),
            Self::U32(y) => y.len(),
        }
    }

    const fn width(&self) -> u32 {
        match self {
            Self::U8(_) => 8,
            Self::U16(_) => 16,
            Self::U32(_) => 32,
        }
    }
}

/// Rounds a flat array, and writes the patterns of `format` to `y`. Returns the numbers of exact, inexact, underflowed,
/// overflowed and invalid elements.
#[pyfunction]
pub fn cast_into(
    py: Python<'_>, x: Numbers<'_>, mut y: Patterns<'_>, format: &str, round: &str, exponent: i32, seed: u64,
) -> PyResult<Tally> {
    let format = words::format(format)?;
    let rounding = Rounding { format, round: words::round(round)?, seed, exponent };
    let mut y = match &mut y {
        Patterns::U8(y) => PatternsMut::U8(y.as_slice_mut()?),
        Patterns::U16(y) => PatternsMut::U16(y.as_slice_mut()?),
        Patterns::U32(y) => PatternsMut::U32(y.as_slice_mut()?),
    };
    if format.width() > y.width() {
        return Err(PyTypeError::new_err(format!("patterns of {format} do not fit {} bits", y.width())));
    }
    let len = match &x {
        Numbers::F32(x) => x.as_slice()?.len(),
        Numbers::F64(x) => x.as_slice()?.len(),
    };
    if len != y.len() {
        return Err(wrong(format!("{len} elements do not fit {}", y.len())));
    }
    match &x {
        Numbers::F32(x) => {
            let x = x.as_slice()?;
            py.detach(|| into(x, &mut y, |x, i| rounding.cast_f32(x, i)))
        }
        Numbers::F64(x) => {
            let x = x.as_slice()?;
            py.detach(|| into(x, &mut y, |x, i| rounding.cast_f64(x, i)))
        }
    }
}

/// Decodes patterns of `format`, multiplies the values by 2^-exponent, and writes them to `y`.
#[pyfunction]
pub fn decode_into(
    py: Python<'_>, x: Read<'_>, mut y: PyReadwriteArray1<'_, f32>, format: &str, exponent: i32,
) -> PyResult<()> {
    let format = words::format(format)?;
    let factor = Factor::between(exponent, 0);
    let y = y.as_slice_mut()?;
    fn values<T: Copy + Into<u32> + Sync>(x: &[T], y: &mut [f32], value: impl Fn(u32) -> f32 + Sync) -> PyResult<()> {
        if x.len() != y.len() {
            return Err(wrong(format!("{} elements do not fit {}", x.len(), y.len())));
        }
        cpu()?.par_chunks(x, y, CHUNK, |_, x, y| x.iter().zip(y).for_each(|(&x, y)| *y = value(x.into())));
        Ok(())
    }
    let value = |bits| factor.apply(format.decode(bits));
    match &x {
        Read::U8(x) => {
            let x = x.as_slice()?;
            py.detach(|| values(x, y, value))
        }
        Read::U16(x) => {
            let x = x.as_slice()?;
            py.detach(|| values(x, y, value))
        }
        Read::U32(x) => {
            let x = x.as_slice()?;
            py.detach(|| values(x, y, value))
        }
    }
}

/// Returns the width of a format's bit patterns in bits.
#[pyfunction]
pub fn width(format: &str) -> PyResult<u32> {
    words::format(format).map(Format::width)
}
