//! 2 × 16, 2 × 12, 4 × 8 or 8 × 4: 8 accumulators of four lanes. SIMD128 has no fused multiply-add, so products are
//! rounded before they are added, as the portable kernels do it: the bits are theirs.

use super::Simd128;
use crate::arch::{
    MicroKernelArgs,
    simd4::{F32x4, Kernels, kernels, run_kernel},
};
use core::arch::wasm32::{f32x4_add, f32x4_mul, f32x4_splat, v128, v128_load, v128_store};

impl F32x4 for v128 {
    #[inline(always)]
    fn zero() -> Self {
        f32x4_splat(0.0)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; loads need not be aligned.
        unsafe { v128_load(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise; stores need not be aligned.
        unsafe { v128_store(to.cast(), self) }
    }

    #[inline(always)]
    fn add_product(self, b: Self, a: f32) -> Self {
        f32x4_add(self, f32x4_mul(b, f32x4_splat(a)))
    }
}

const KERNELS: Kernels<{ Simd128::SHAPE.vectors }> = kernels!(v128;
    1: 1 2 3 4 5 6 7 8;
    2: 1 2 3 4;
    3: 1 2;
    4: 1 2;
);

pub fn accumulate_tile(_proof: Simd128, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
    run_kernel(&KERNELS, &Simd128::SHAPE, tile, acc, acc_row);
}
