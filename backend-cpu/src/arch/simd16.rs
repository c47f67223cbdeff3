//! Sixteen numbers side by side, for loops that the compiler makes no vectors of: whose sums stay in registers, or that read
//! halves as they go. Each instruction set rounds after every operation, so that all give the same bits.

use super::LANES;
use core::{
    array::from_fn,
    ops::{Add, Mul, Sub},
};
use half::f16;

/// What formulas are made of: lanes, or one number of those that are too few for them.
pub trait Arithmetic: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {}

impl<N: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>> Arithmetic for N {}

/// A vector of sixteen f32.
pub trait F32x16: Arithmetic {
    fn splat(x: f32) -> Self;
    fn load(x: &[f32; LANES]) -> Self;
    /// Halves, exactly.
    fn from_f16(x: &[f16; LANES]) -> Self;
    fn store(self, y: &mut [f32; LANES]);
}

/// What lanes are loaded from.
pub trait Element: Copy {
    fn load16<V: F32x16>(x: &[Self; LANES]) -> V;
    fn to_scalar(self) -> f32;
}

impl Element for f32 {
    #[inline(always)]
    fn load16<V: F32x16>(x: &[Self; LANES]) -> V {
        V::load(x)
    }

    #[inline(always)]
    fn to_scalar(self) -> f32 {
        self
    }
}

impl Element for f16 {
    #[inline(always)]
    fn load16<V: F32x16>(x: &[Self; LANES]) -> V {
        V::from_f16(x)
    }

    #[inline(always)]
    fn to_scalar(self) -> f32 {
        self.to_f32()
    }
}

/// Sixteen numbers for which the compiler finds vectors.
#[derive(Clone, Copy)]
pub struct PortableF32x16([f32; LANES]);

impl F32x16 for PortableF32x16 {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        Self(*x)
    }

    #[inline(always)]
    fn from_f16(x: &[f16; LANES]) -> Self {
        Self(x.map(f16::to_f32))
    }

    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        *y = self.0;
    }
}

/// An operation in each lane.
macro_rules! portable_ops {
    ($($trait:ident $name:ident)*) => {
        $(impl $trait for PortableF32x16 {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                Self(from_fn(|l| self.0[l].$name(other.0[l])))
            }
        })*
    };
}

portable_ops!(Add add Sub sub Mul mul);
