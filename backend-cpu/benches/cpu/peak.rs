//! Limits of the machine: multiply-adds and memory bandwidth.

use crate::measure::best_time;
use gradscale_cpu::Isa;
use pulp::{Simd, WithSimd};
use std::{hint::black_box, thread};

/// Returns the f32 multiply-adds of one thread in 10⁹ a second, without memory accesses.
pub fn peak(isa: Isa) -> f64 {
    // Short, so that at least one run is not interrupted.
    const CHAIN_STEPS: usize = 20_000;
    let mut lanes = 0;
    let duration = best_time(|| lanes = chains(isa, black_box(CHAIN_STEPS)));
    (CHAIN_STEPS * CHAIN_COUNT * lanes) as f64 / duration.as_secs_f64() / 1e9
}

/// Runs the loop of multiply-adds with the vectors of an instruction set and returns their number of lanes.
fn chains(isa: Isa, steps: usize) -> usize {
    let fused = isa != Isa::Portable;
    let chains = Chains { steps, fused };
    #[cfg(target_arch = "x86_64")]
    let run = match isa.to_string().as_str() {
        "AVX-512" | "AMX" => pulp::x86::V4::try_new().map(|simd| Simd::vectorize(simd, chains)),
        "AVX2" => pulp::x86::V3::try_new().map(|simd| Simd::vectorize(simd, chains)),
        _ => pulp::x86::V2::try_new().map(|simd| Simd::vectorize(simd, chains)),
    };
    #[cfg(target_arch = "aarch64")]
    let run = pulp::aarch64::Neon::try_new().map(|simd| Simd::vectorize(simd, chains));
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let run = None;
    run.unwrap_or_else(|| Simd::vectorize(pulp::Scalar::new(), chains))
}

/// Number of independent sums in the loop: enough to hide the latency of a multiply-add.
const CHAIN_COUNT: usize = 12;

/// Loop of sums of products for the peak: fused multiply-adds, or a product and a sum where an instruction set has
/// none.
#[derive(Clone, Copy)]
struct Chains {
    steps: usize,
    fused: bool,
}

impl WithSimd for Chains {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let mut sums = [simd.splat_f32s(black_box(1.0)); CHAIN_COUNT];
        let factor = simd.splat_f32s(black_box(0.5));
        for _ in 0..self.steps {
            for sum in &mut sums {
                *sum = if self.fused {
                    simd.mul_add_f32s(*sum, factor, factor)
                } else {
                    simd.add_f32s(simd.mul_f32s(*sum, factor), factor)
                };
            }
        }
        black_box(sums);
        S::F32_LANES
    }
}

/// Number of bytes that one run of [`copier`] reads and writes.
pub const COPIED_BYTES: f64 = 2.0 * COPY_LEN as f64;
const COPY_LEN: usize = 64 << 20;

/// Returns a function that copies memory far larger than the caches on all threads.
pub fn copier(threads: usize) -> impl FnMut() {
    let (from, mut to) = (vec![1u8; COPY_LEN], vec![0u8; COPY_LEN]);
    move || {
        let part = COPY_LEN.div_ceil(threads);
        thread::scope(|scope| {
            for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
                scope.spawn(|| to.copy_from_slice(black_box(from)));
            }
        });
    }
}
