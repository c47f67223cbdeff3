//! Input of the fused store kernel.

use super::Isa;
use core::ops::Range;
use half::f16;

/// Number of bit patterns of a half, the length of a lookup table.
pub const F16_VALUES: usize = 1 << 16;

/// Lookup table: one f32 result for each bit pattern of a half.
pub type F16Lut = [f32; F16_VALUES];

/// Input of the fused store kernel: f32 values, or halves with a lookup table.
#[derive(Clone, Copy, Debug)]
pub enum StoreInput<'a> {
    F32(&'a [f32]),
    /// Results that a lookup table has for halves.
    Lut(&'a F16Lut, &'a [f16]),
}

impl StoreInput<'_> {
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::Lut(_, x) => x.len(),
        }
    }

    /// Returns the part of the input with these indices.
    pub fn range(&self, range: Range<usize>) -> Self {
        match *self {
            Self::F32(x) => Self::F32(&x[range]),
            Self::Lut(lut, x) => Self::Lut(lut, &x[range]),
        }
    }

    /// Writes the input's f32 values to `out`.
    pub fn read(&self, isa: Isa, out: &mut [f32]) {
        match *self {
            Self::F32(x) => out.copy_from_slice(x),
            Self::Lut(lut, x) => isa.apply_lut(lut, x, out),
        }
    }
}
