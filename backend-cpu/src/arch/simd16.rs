//! Sixteen numbers side by side, for loops that the compiler makes no vectors of: whose sums stay in registers, or that read
//! halves as they go. Each instruction set rounds after every operation, so that all give the same bits.

use super::LANES;
use core::{
    array::from_fn,
    ops::{Add, Mul, Sub},
};
use half::f16;

/// What formulas are made of: lanes, or one number of those that are too few for them.
pub trait Number: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {}

impl<N: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>> Number for N {}

/// A vector of sixteen f32.
pub trait Lanes: Number {
    fn splat(x: f32) -> Self;
    fn load(x: &[f32; LANES]) -> Self;
    /// Halves, exactly.
    fn widen(x: &[f16; LANES]) -> Self;
    fn store(self, y: &mut [f32; LANES]);
}

/// What lanes are loaded from.
pub trait Element: Copy {
    fn lanes<V: Lanes>(x: &[Self; LANES]) -> V;
    fn number(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn lanes<V: Lanes>(x: &[Self; LANES]) -> V {
        V::load(x)
    }

    #[inline(always)]
    fn number(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline(always)]
    fn lanes<V: Lanes>(x: &[Self; LANES]) -> V {
        V::widen(x)
    }

    #[inline(always)]
    fn number(self) -> f32 {
        self.to_f32()
    }
}

/// Sixteen numbers for which the compiler finds vectors.
#[derive(Clone, Copy)]
pub struct Plain([f32; LANES]);

impl Lanes for Plain {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Self(*x)
    }

    #[inline(always)]
    fn widen(x: &[f16; LANES]) -> Self {
        Self(x.map(f16::to_f32))
    }

    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        *y = self.0;
    }
}

/// An operation in each lane.
macro_rules! plain {
    ($($trait:ident $name:ident)*) => {
        $(impl $trait for Plain {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self(from_fn(|l| self.0[l].$name(other.0[l])))
            }
        })*
    };
}

plain!(Add add Sub sub Mul mul);
