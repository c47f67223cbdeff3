//! What the machine could do at most.

use crate::measure::best;
use gradscale_cpu::Isa;
use pulp::NullaryFnOnce;
use std::{hint::black_box, thread};

/// Elements of one sum: a shape that the compiler makes vectors of.
const LANES: usize = 16;

/// 10⁹ multiply-adds of f32 in a second, of one thread without memory.
pub fn peak(isa: Isa) -> f64 {
    // Short: nobody interrupts all of them.
    const STEPS: usize = 20_000;
    let (sums, chains): (usize, fn(usize) -> f32) = match isa.to_string().as_str() {
        #[cfg(target_arch = "x86_64")]
        "AVX-512" => (12, |steps| {
            let simd = pulp::x86::V4::try_new().expect("what AVX-512 needs");
            simd.vectorize(Chains::<12, _> { steps, step: f32::mul_add })
        }),
        #[cfg(target_arch = "x86_64")]
        "AVX2" => (6, |steps| {
            let simd = pulp::x86::V3::try_new().expect("what AVX2 needs");
            simd.vectorize(Chains::<6, _> { steps, step: f32::mul_add })
        }),
        #[cfg(target_arch = "aarch64")]
        "NEON" => (6, |steps| Chains::<6, _> { steps, step: f32::mul_add }.call()),
        _ => (3, |steps| Chains::<3, _> { steps, step: |sum, a, b| sum * a + b }.call()),
    };
    let one = best(|| {
        black_box(chains(black_box(STEPS)));
    });
    (STEPS * sums * LANES) as f64 / one.as_secs_f64() / 1e9
}

/// Independent sums: twelve vectors, enough to hide the latency of one.
struct Chains<const SUMS: usize, F> {
    steps: usize,
    step: F,
}

impl<const SUMS: usize, F: Fn(f32, f32, f32) -> f32> NullaryFnOnce for Chains<SUMS, F> {
    type Output = f32;

    #[inline(always)]
    fn call(self) -> f32 {
        let mut sums = [[1f32; LANES]; SUMS];
        let factor: [f32; LANES] = core::array::from_fn(|i| black_box(0.5 + i as f32 / 64.0));
        for _ in 0..self.steps {
            for sum in &mut sums {
                for (sum, &factor) in sum.iter_mut().zip(&factor) {
                    *sum = (self.step)(*sum, factor, factor);
                }
            }
        }
        sums.as_flattened().iter().sum()
    }
}

/// 10⁹ bytes read and written in a second by copies far larger than the caches.
pub fn copy(threads: usize) -> f64 {
    const LEN: usize = 64 << 20;
    let (from, mut to) = (vec![1u8; LEN], vec![0u8; LEN]);
    let all = best(|| {
        let part = LEN.div_ceil(threads);
        thread::scope(|scope| {
            for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
                scope.spawn(|| to.copy_from_slice(black_box(from)));
            }
        });
    });
    2.0 * LEN as f64 / all.as_secs_f64() / 1e9
}
