//! Vectors of sixteen f32, for loops that compilers do not vectorise well: those whose sums stay in registers, or that
//! convert halves on the way. Every instruction set rounds after each operation, so that all have the same bits.

use super::LANES;
use core::{
    array::from_fn,
    ops::{Add, Mul, Sub},
};
use half::f16;

/// Operands of formulas: a vector, or a scalar for the remainder of a slice.
pub trait Arithmetic: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> {}

impl<N: Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self>> Arithmetic for N {}

/// Trait of a vector of sixteen f32 in an instruction set.
pub trait F32x16: Arithmetic {
    fn splat(x: f32) -> Self;
    fn load(x: &[f32; LANES]) -> Self;
    /// Converts sixteen halves to f32, exactly.
    fn from_f16(x: &[f16; LANES]) -> Self;
    fn store(self, y: &mut [f32; LANES]);
}

/// Trait of the element types from which vectors are loaded: f32 and half.
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

/// Sixteen f32 in an array, whose loops the compiler vectorises.
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

/// Macro: implements an arithmetic operation lane by lane.
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
