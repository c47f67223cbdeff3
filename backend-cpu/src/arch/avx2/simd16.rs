//! Vectors of sixteen f32 as two AVX2 vectors of eight.

use crate::arch::{LANES, simd16::F32x16};
use core::{
    arch::x86_64::{
        __m256, _mm_loadu_si128, _mm256_add_ps, _mm256_cvtph_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps,
        _mm256_storeu_ps, _mm256_sub_ps,
    },
    ops::{Add, Mul, Sub},
};
use half::f16;

/// Sixteen f32 in two AVX2 vectors. Created only in kernels that are entered with a token of AVX2.
#[derive(Clone, Copy)]
pub struct Avx2F32x16([__m256; 2]);

/// Number of f32 lanes of one AVX2 vector.
const HALF: usize = LANES / 2;

impl F32x16 for Avx2F32x16 {
    #[inline(always)]
    fn splat(x: f32) -> Self {
        // SAFETY: the kernel's token proves the feature.
        Self([unsafe { _mm256_set1_ps(x) }; 2])
    }

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> Self {
        // SAFETY: the kernel's token proves the feature; two times eight elements.
        Self(unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(HALF))] })
    }

    #[inline(always)]
    fn from_f16(x: &[f16; LANES]) -> Self {
        // SAFETY: the kernel's token proves the feature; two times eight halves, which are 16 bits without padding.
        Self(unsafe { [0, HALF].map(|at| _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().add(at).cast()))) })
    }

    #[inline(always)]
    fn store(self, y: &mut [f32; LANES]) {
        let [first, second] = self.0;
        // SAFETY: the kernel's token proves the feature; two times eight elements.
        unsafe {
            _mm256_storeu_ps(y.as_mut_ptr(), first);
            _mm256_storeu_ps(y.as_mut_ptr().add(HALF), second);
        }
    }
}

/// Macro: implements an arithmetic operation on both AVX2 vectors of the sixteen lanes.
macro_rules! vector_ops {
    ($($trait:ident $name:ident $intrinsic:ident)*) => {
        $(impl $trait for Avx2F32x16 {
            type Output = Self;

            #[inline(always)]
            fn $name(self, other: Self) -> Self {
                let ([a, b], [c, d]) = (self.0, other.0);
                // SAFETY: the kernel's token proves the feature.
                Self(unsafe { [$intrinsic(a, c), $intrinsic(b, d)] })
            }
        })*
    };
}

vector_ops!(Add add _mm256_add_ps Sub sub _mm256_sub_ps Mul mul _mm256_mul_ps);
