//! 6 × 16, 8 × 12, 12 × 8 or 24 × 4: 24 accumulators of four lanes, with one to four vectors of b. A product takes its
//! scalar of a from a lane.

use super::Neon;
use crate::arch::{
    MicroKernelArgs,
    simd4::{F32x4, Kernels, kernels, run_kernel},
};
use core::arch::aarch64::{float32x4_t, vdupq_n_f32, vfmaq_n_f32, vld1q_f32, vst1q_f32};

impl F32x4 for float32x4_t {
    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: the target has NEON.
        unsafe { vdupq_n_f32(0.0) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise; the target has NEON.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller's promise; the target has NEON.
        unsafe { vst1q_f32(to, self) }
    }

    #[inline(always)]
    fn add_product(self, b: Self, a: f32) -> Self {
        // SAFETY: the target has NEON.
        unsafe { vfmaq_n_f32(self, b, a) }
    }
}

const KERNELS: Kernels<{ Neon::SHAPE.vectors }> = kernels!(float32x4_t;
    1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24;
    2: 1 2 3 4 5 6 7 8 9 10 11 12;
    3: 1 2 3 4 5 6 7 8;
    4: 1 2 3 4 5 6;
);

pub fn accumulate_tile(_proof: Neon, tile: &MicroKernelArgs<'_>, acc: &mut [f32], acc_row: usize) {
    run_kernel(&KERNELS, &Neon::SHAPE, tile, acc, acc_row);
}
