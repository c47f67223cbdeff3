//! How and when gradients are reduced, and which reduction is faster on the ranks of a group.

use super::{DistributedError, GradSums, Group, local_micro_batches};
use std::{
    fmt,
    str::FromStr,
    time::{Duration, Instant},
};

/// Maximum number of gradient values that a benchmark sends: 4 MiB in f32, at which messages are limited by bandwidth.
const BENCH_ELEMENTS: usize = 1 << 20;
/// Number of repetitions of a benchmark; the minimum counts, because disturbances only ever add time.
const BENCH_ITERS: usize = 3;

/// Arithmetic of the sum over the gradients of all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReduceMode {
    /// Exact FP16 sums that are rounded once: the bits are the same for any number of ranks. Each rank sends half the
    /// bytes of f32 if it has one micro-batch.
    #[default]
    ExactF16,
    /// Native f32 sums, by the all-reduce of the transport: bits depend on the number of ranks and on the transport.
    NativeF32,
}

impl ReduceMode {
    /// All modes of reducing gradients over ranks.
    pub const ALL: [Self; 2] = [Self::ExactF16, Self::NativeF32];
}

impl fmt::Display for ReduceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExactF16 => "exact",
            Self::NativeF32 => "fast",
        })
    }
}

impl FromStr for ReduceMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| format!("there is no exchange {text}: exact or fast"))
    }
}

/// Minimum number of weights of a bucket: with fewer, the cost of a message exceeds that of its bytes.
const MIN_BUCKET_SIZE: usize = 1 << 16;
/// Number of buckets of a large network: it needs few messages, and 15 of 16 buckets can be sent before the backward
/// pass ends.
const BUCKETS: usize = 16;

/// Overlap of gradient communication with the backward pass. Bits do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// Automatic overlap: sends buckets during the backward pass of the rank's last micro-batch, as soon as their
    /// gradients are complete. A bucket has 65,536 weights or a sixteenth of all weights, whichever is more.
    #[default]
    Auto,
    /// Overlap with buckets of at least this many weights; the gradient of one parameter is never split.
    BucketSize(usize),
    /// No overlap: sends gradients after the backward pass.
    Off,
}

impl Overlap {
    /// Returns the minimum bucket size for a network of `weights` weights; `None` without overlap.
    pub(crate) fn bucket_size(self, weights: usize) -> Option<usize> {
        match self {
            Self::Auto => Some((weights / BUCKETS).max(MIN_BUCKET_SIZE)),
            Self::BucketSize(size) => Some(size),
            Self::Off => None,
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("on"),
            Self::BucketSize(size) => write!(f, "{size}"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl FromStr for Overlap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("on", _) => Ok(Self::Auto),
            ("off", _) => Ok(Self::Off),
            (_, Ok(size)) if size > 0 => Ok(Self::BucketSize(size)),
            _ => Err(format!("there is no overlap {text}: on, off, or how many weights travel together")),
        }
    }
}

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
