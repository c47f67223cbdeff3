//! What a pass that stores reads.

use super::Isa;
use core::ops::Range;
use half::f16;

/// Bits that a half may have.
pub const HALVES: usize = 1 << 16;

/// What the bits of every half lead to.
pub type Results = [f32; HALVES];

/// Values that lie in memory.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    F32(&'a [f32]),
    /// The results of halves.
    Results(&'a Results, &'a [f16]),
}

impl Values<'_> {
    pub const fn len(&self) -> usize {
        match self {
            Self::F32(x) => x.len(),
            Self::Results(_, x) => x.len(),
        }
    }

    /// Those of a range.
    pub fn range(&self, range: Range<usize>) -> Self {
        match *self {
            Self::F32(x) => Self::F32(&x[range]),
            Self::Results(results, x) => Self::Results(results, &x[range]),
        }
    }

    /// Copies all.
    pub fn read(&self, isa: Isa, out: &mut [f32]) {
        match *self {
            Self::F32(x) => out.copy_from_slice(x),
            Self::Results(results, x) => isa.look_up(results, x, out),
        }
    }
}
