//! A row of statistics, light or full.

use super::{Convention, Counts, Moments};
use core::fmt;

/// Bins of a histogram: one for each value of an f32's exponent field.
pub const BINS: usize = 256;

/// How much a row observes; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Detail {
    /// Nothing.
    None,
    /// Counters and amax: 64 bytes, every step.
    Counts,
    /// The histogram too: 1 KiB, in steps that decide.
    Full,
    /// The sums too, when a model of the paper asks for them.
    Moments,
}

crate::codes!(Detail {
    Self::None => 0 "DETAIL_NONE",
    Self::Counts => 1 "DETAIL_COUNTS",
    Self::Full => 2 "DETAIL_FULL",
    Self::Moments => 3 "DETAIL_MOMENTS",
});

/// A share as two integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Those that count.
    pub part: u64,
    /// All.
    pub whole: u64,
}

impl Rate {
    /// `part / whole`; 0 if there is nothing.
    #[must_use]
    pub fn value(self) -> f64 {
        if self.whole == 0 { 0.0 } else { self.part as f64 / self.whole as f64 }
    }

    /// Whether part / whole ≤ ppm / 10⁶, in integers.
    #[must_use]
    pub const fn within(self, ppm: u32) -> bool {
        self.part as u128 * 1_000_000 <= ppm as u128 * self.whole as u128
    }
}

/// The summary of all values that one store saw. About 1.1 KB; a bare [`Counts`] is 64 bytes.
///
/// Bin c of the histogram counts the finite non-zero u whose key is c + 127; under
/// [`FlushRule::Nearest`](super::FlushRule::Nearest) these are 2^(c−1) < |u| ≤ 2^c, and bin −126 holds all below.
/// A bin counts to 2^32 − 1 and stays there.
///
/// ```
/// use gradscale_core::stats::{Convention, Detail, Stats};
/// let mut row = Stats::new(Convention::FP16, 0, Detail::Full);
/// row.observe(&[1.0, -0.0, 1e-9, 1e6, f32::NAN]);
/// let counts = row.counts();
/// assert_eq!((counts.count, counts.zeros, counts.flushed, counts.overflowed, counts.nan), (5, 1, 1, 1, 1));
/// assert_eq!(row.flushed_at(5).map(|rate| rate.part), Some(0)); // 2^5 · 1e-9 is above 2^-25
/// assert!(row.lost_at(0).is_some_and(|share| share < 1e-14)); // one value of three, but next to nothing of their sum
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    pub(super) convention: Convention,
    pub(super) detail: Detail,
    pub(super) counts: Counts,
    pub(super) moments: Moments,
    pub(super) bins: [u32; BINS],
}

impl Stats {
    /// The empty row: the identity of [`Stats::merge`] among rows of the same convention, exponent and detail.
    #[must_use]
    pub const fn new(convention: Convention, exponent: i32, detail: Detail) -> Self {
        Self {
            convention,
            detail,
            counts: Counts::new(exponent),
            moments: Moments { sum: 0.0, sum_sq: 0.0, sum_ln: 0.0, sum_ln_sq: 0.0 },
            bins: [0; BINS],
        }
    }

    /// Adds values, in any order; empty slices are fine.
    pub fn observe(&mut self, u: &[f32]) {
        if self.detail >= Detail::Counts {
            self.counts.observe(self.convention, u);
        }
        if self.detail >= Detail::Full {
            let constant = self.convention.key_constant();
            for &u in u {
                let magnitude = u.to_bits() & 0x7FFF_FFFF;
                // Zeros, ∞ and NaN first: key 255 would catch ∞.
                if magnitude != 0 && magnitude < 0x7F80_0000 {
                    let [key, ..] = ((magnitude + constant) >> 23).to_le_bytes();
                    let bin = &mut self.bins[usize::from(key)];
                    *bin = bin.saturating_add(1);
                }
            }
        }
        if self.detail >= Detail::Moments {
            self.moments.observe(u);
        }
    }

    /// The row of both sets of values.
    ///
    /// # Errors
    /// [`MergeError`] if the rows differ in convention, exponent or detail: they count different things.
    pub fn merge(&self, other: &Self) -> Result<Self, MergeError> {
        if self.convention != other.convention {
            return Err(MergeError::Convention);
        }
        if self.counts.exponent != other.counts.exponent {
            return Err(MergeError::Exponent { left: self.counts.exponent, right: other.counts.exponent });
        }
        if self.detail != other.detail {
            return Err(MergeError::Detail);
        }
        let mut merged = *self;
        merged.counts = self.counts.merged(&other.counts);
        merged.moments = self.moments.merged(&other.moments);
        for (bin, &more) in merged.bins.iter_mut().zip(&other.bins) {
            *bin = bin.saturating_add(more);
        }
        Ok(merged)
    }

    /// Counters, amax and exponent.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The exponent at which the values were seen.
    #[must_use]
    pub const fn exponent(&self) -> i32 {
        self.counts.exponent
    }

    /// The convention of keys and thresholds.
    #[must_use]
    pub const fn convention(&self) -> Convention {
        self.convention
    }

    /// How much the row observed.
    #[must_use]
    pub const fn detail(&self) -> Detail {
        self.detail
    }

    /// The 256 bins by key, if observed. Bin `key` is c = key − 127.
    #[must_use]
    pub fn bins(&self) -> Option<&[u32; BINS]> {
        (self.detail >= Detail::Full).then_some(&self.bins)
    }

    /// The sums, if observed.
    #[must_use]
    pub fn moments(&self) -> Option<&Moments> {
        (self.detail >= Detail::Moments).then_some(&self.moments)
    }

    /// Which share of the non-zero values flushes at the exponent [`Stats::exponent`] + `k`: "flush iff
    /// c ≤ T − k". `None` without a histogram. Exact for every k ≤ 101 under nearest even; beyond that the
    /// lowest bin may hold values that still flush.
    #[must_use]
    pub fn flushed_at(&self, k: i32) -> Option<Rate> {
        let bins = self.bins()?;
        let last = self.convention.last_flushed().saturating_sub(k).saturating_add(127);
        let (mut part, mut whole) = (0, 0);
        for (&count, key) in bins.iter().zip(0..) {
            whole += u64::from(count);
            part += if key <= last { u64::from(count) } else { 0 };
        }
        Some(Rate { part, whole })
    }

    /// Which share of Σ|u| flushes at the exponent [`Stats::exponent`] + `k`: what a gradient loses, where
    /// [`Stats::flushed_at`] says how many values it loses. Every value counts with the end of its bin: the share is right
    /// within a factor of 2, but for values below 2^-127. 0 if all is zero, `None` without a histogram.
    #[must_use]
    pub fn lost_at(&self, k: i32) -> Option<f64> {
        let bins = self.bins()?;
        let last = self.convention.last_flushed().saturating_sub(k).saturating_add(127);
        let (mut part, mut whole) = (0.0, 0.0);
        let mut end = f64::from_bits((1023 - 127) << 52);
        for (&count, key) in bins.iter().zip(0..) {
            whole += f64::from(count) * end;
            part += if key <= last { f64::from(count) * end } else { 0.0 };
            end += end;
        }
        Some(if whole > 0.0 { part / whole } else { 0.0 })
    }

    /// The largest k, relative to [`Stats::exponent`], at which amax does not overflow; `None` if all is zero.
    #[must_use]
    pub const fn room_above(&self) -> Option<i32> {
        self.convention.room_above(self.counts.amax)
    }
}

/// Why two rows cannot merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// Their keys and thresholds differ.
    Convention,
    /// They were seen at different exponents.
    Exponent {
        /// Exponent of the left row.
        left: i32,
        /// Exponent of the right row.
        right: i32,
    },
    /// One observed more than the other.
    Detail,
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convention => f.write_str("rows of different flush conventions do not merge"),
            Self::Exponent { left, right } => write!(f, "rows seen at exponents {left} and {right} do not merge"),
            Self::Detail => f.write_str("a light and a full row do not merge"),
        }
    }
}

impl core::error::Error for MergeError {}
