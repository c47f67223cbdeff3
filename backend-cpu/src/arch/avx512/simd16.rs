//! Vectors of sixteen f32 as one AVX-512 vector.

use crate::arch::{LANES, simd16::F32x16};
use core::{
    arch::x86_64::{
        __m512, _mm256_loadu_si256, _mm512_add_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps, _mm512_storeu_ps,
        _mm512_sub_ps,
    },
    ops::{Add, Mul, Sub},
};
use half::f16;

/// Sixteen f32 in one AVX-512 vector. Created only in kernels that are entered with a token of AVX-512.
#[derive(Clone, Copy)]
pub struct Avx512F32x16(__m512);

impl F32x16 for Avx512F32x16 {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: the kernel's token proves the feature.
        Self(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: the kernel's token proves the feature; sixteen elements.
        Self(unsafe { _mm512_loadu_ps(x.as_ptr()) })
    }

    #[inline(always)]
    fn from_f16(x: &[f16; LANES]) -> Self {
        // SAFETY: the kernel's token proves the feature; sixteen halves, which are 16 bits without padding.
        Self(unsafe { super::to_f32(_mm256_loadu_si256(x.as_ptr().cast())) })
    }

    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        // SAFETY: the kernel's token proves the feature; sixteen elements.
        unsafe { _mm512_storeu_ps(y.as_mut_ptr(), self.0) }
    }
}

/// Macro: implements an arithmetic operation on the AVX-512 vector.
macro_rules! vector_ops {
    ($($trait:ident $name:ident $intrinsic:ident)*) => {
        $(impl $trait for Avx512F32x16 {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                // SAFETY: the kernel's token proves the feature.
                Self(unsafe { $intrinsic(self.0, other.0) })
            }
        })*
    };
}

vector_ops!(Add add _mm512_add_ps Sub sub _mm512_sub_ps Mul mul _mm512_mul_ps);
