//! Benchmark of the reduce modes on the ranks of a group: which one is faster.

use super::{DistributedError, GradSums, Group, ReduceMode, local_micro_batches};
use std::time::{Duration, Instant};

/// Maximum number of gradient values that a benchmark sends: 4 MiB in f32, at which messages are limited by bandwidth.
const BENCH_ELEMENTS: usize = 1 << 20;
/// Number of repetitions of a benchmark; the minimum counts, because disturbances only ever add time.
const BENCH_ITERS: usize = 3;

/// Measured time per step of each reduce mode, on the slowest rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReduceTimings {
    /// Time per step with [`ReduceMode::ExactF16`].
    pub exact_f16: Duration,
    /// Time per step with [`ReduceMode::NativeF32`].
    pub native_f32: Duration,
}

impl ReduceTimings {
    /// Returns the reduce mode with the shorter time.
    #[must_use]
    pub fn fastest_mode(&self) -> ReduceMode {
        if self.native_f32 < self.exact_f16 { ReduceMode::NativeF32 } else { ReduceMode::ExactF16 }
    }
}

impl Group {
    /// Measures the time to reduce `weights` gradients in each mode, in a step of `micro_batches` micro-batches. All
    /// ranks get the same result. For large networks only some of the values are sent, and the time is scaled up.
    ///
    /// # Errors
    /// A rank that is lost or has failed.
    pub fn measure_reduce_modes(&self, weights: usize, micro_batches: u32) -> Result<ReduceTimings, DistributedError> {
        let elements = weights.clamp(1, BENCH_ELEMENTS);
        let ReduceTimings { exact_f16, native_f32 } = self.benchmark(|mode| {
            let mut sums = GradSums::new(mode, elements, (micro_batches, self.rank(), self.size()));
            for _ in 0..local_micro_batches(micro_batches, self.rank(), self.size()) {
                sums.accumulate(0, &vec![1.0; elements], Some(0));
            }
            self.all_reduce_mean(sums, micro_batches).map(drop)
        })?;
        let scale_up = |time: Duration| time.mul_f64(weights as f64 / elements as f64);
        Ok(ReduceTimings { exact_f16: scale_up(exact_f16), native_f32: scale_up(native_f32) })
    }

    /// Returns the minimum measured time per step of each reduce mode, on the slowest rank.
    pub(crate) fn benchmark<E: From<DistributedError>>(
        &self, mut reduce: impl FnMut(ReduceMode) -> Result<(), E>,
    ) -> Result<ReduceTimings, E> {
        let mut times = [Duration::ZERO; 2];
        for (time, mode) in times.iter_mut().zip(ReduceMode::ALL) {
            let mut fastest = Duration::MAX;
            for _ in 0..BENCH_ITERS {
                // A barrier, so that waiting for slower ranks is not measured.
                self.all_gather_u64(0)?;
                let start = Instant::now();
                reduce(mode)?;
                fastest = fastest.min(start.elapsed());
            }
            let nanoseconds = u64::try_from(fastest.as_nanos()).unwrap_or(u64::MAX);
            let slowest = self.all_gather_u64(nanoseconds)?.into_iter().max().unwrap_or(nanoseconds);
            *time = Duration::from_nanos(slowest);
        }
        let [exact_f16, native_f32] = times;
        Ok(ReduceTimings { exact_f16, native_f32 })
    }
}
