//! What a pass that stores reads.

use super::Isa;
use core::ops::Range;
use half::f16;

/// Bits that a half may have.
pub const F16_VALUES: usize = 1 << 16;

/// What the bits of every half lead to.
pub type F16Lut = [f32; F16_VALUES];

/// Values that lie in memory.
#[derive(Clone, Copy, Debug)]
pub enum StoreInput<'a> {
    F32(&'a [f32]),
    /// The results of halves.
    Lut(&'a F16Lut, &'a [f16]),
}

impl StoreInput<'_> {
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::Lut(_, x) => x.len(),
        }
    }

    /// Those of a range.
    pub fn range(&self, range: Range<usize>) -> Self {
        match *self {
            Self::F32(x) => Self::F32(&x[range]),
            Self::Lut(lut, x) => Self::Lut(lut, &x[range]),
        }
    }

    /// Copies all.
    pub fn read(&self, isa: Isa, out: &mut [f32]) {
        match *self {
            Self::F32(x) => out.copy_from_slice(x),
            Self::Lut(lut, x) => isa.apply_lut(lut, x, out),
        }
    }
}
