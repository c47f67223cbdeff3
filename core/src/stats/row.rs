//! Statistics row with optional histogram and sums.

use super::{Convention, Counts, Moments};
use crate::store_format::StoreFormat;
use core::fmt;

/// Number of bins of a histogram: one for each value of an f32's exponent field.
pub const BINS: usize = 256;

/// Level of detail of a statistics row; each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Detail {
    /// Statistics are off: the row counts nothing.
    None,
    /// Counters and amax, 64 bytes; observed in every step.
    Counts,
    /// Histogram as well, 1 KiB; observed in steps that decide.
    Full,
    /// Sums as well, for the paper's models that need them.
    Moments,
}

crate::codes!(Detail {
    Self::None => 0 "DETAIL_NONE",
    Self::Counts => 1 "DETAIL_COUNTS",
    Self::Full => 2 "DETAIL_FULL",
    Self::Moments => 3 "DETAIL_MOMENTS",
});

/// Fraction of values as two integers, part and whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rate {
    /// Numerator of the fraction: number of values with the property.
    pub part: u64,
    /// Denominator of the fraction: number of all values.
    pub whole: u64,
}

impl Rate {
    /// Returns the fraction `part / whole`; 0 if there are no values.
    #[must_use]
    pub fn value(self) -> f64 {
        if self.whole == 0 { 0.0 } else { self.part as f64 / self.whole as f64 }
    }

    /// Returns true if part / whole ≤ ppm / 10⁶, computed with integers.
    #[must_use]
    pub const fn within(self, ppm: u32) -> bool {
        self.part as u128 * 1_000_000 <= ppm as u128 * self.whole as u128
    }
}

/// Statistics row: summary of all values that one store rounded. About 1.1 KB; a bare [`Counts`] is 64 bytes.
///
/// Bin c of the histogram counts the finite non-zero u whose key is c + 127. Under
/// [`FlushRule::Nearest`](super::FlushRule::Nearest) these are 2^(c−1) < |u| ≤ 2^c, and bin −126 holds everything
/// below. A bin saturates at 2^32 − 1.
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
    /// Creates the empty row, which is the identity of [`Stats::merge`] among rows of the same convention, exponent and
    /// detail.
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

    /// Adds values to the statistics row, in any order; empty slices are allowed.
    pub fn observe(&mut self, u: &[f32]) {
        if self.detail >= Detail::Counts {
            self.counts.observe(self.convention, u);
        }
        if self.detail >= Detail::Full {
            let constant = self.convention.key_constant();
            for &u in u {
                let magnitude = u.to_bits() & 0x7FFF_FFFF;
                // Zeros and ∞ are excluded first, because key 255 would include ∞.
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

    /// Merges two statistics rows: returns the row of both sets of values together.
    ///
    /// # Errors
    /// [`MergeError`] if the rows differ in convention, exponent or detail, because they then count different things.
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

    /// Returns the row of a store in `format` that a device has counted. Devices write words without a convention; a
    /// backend reads them as rows of FP16, and whoever knows the store names its format. Keys of the histogram are those
    /// of nearest even in every format, so only the meaning of the counters changes.
    #[must_use]
    pub const fn counted_in(self, format: StoreFormat) -> Self {
        Self { convention: format.convention(), ..self }
    }

    /// Returns the counters of the statistics row, with amax and exponent.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the exponent at which the row's values were observed.
    #[must_use]
    pub const fn exponent(&self) -> i32 {
        self.counts.exponent
    }

    /// Returns the convention (format and flush rule) of the row's keys and thresholds.
    #[must_use]
    pub const fn convention(&self) -> Convention {
        self.convention
    }

    /// Returns the level of detail that the row observed.
    #[must_use]
    pub const fn detail(&self) -> Detail {
        self.detail
    }

    /// Returns the 256 bins by key, if observed. Bin `key` is c = key − 127.
    #[must_use]
    pub fn bins(&self) -> Option<&[u32; BINS]> {
        (self.detail >= Detail::Full).then_some(&self.bins)
    }

    /// Returns the sums of the statistics row, if it observed them.
    #[must_use]
    pub fn moments(&self) -> Option<&Moments> {
        (self.detail >= Detail::Moments).then_some(&self.moments)
    }

    /// Computes the fraction of the non-zero values that flushes at the exponent [`Stats::exponent`] + `k`: "flush if
    /// and only if c ≤ T − k". `None` without a histogram. It is exact for every k ≤ 101 under nearest even; beyond
    /// that the lowest bin may hold values that still flush.
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

    /// Computes the fraction of Σ|u| that flushes at the exponent [`Stats::exponent`] + `k`, while
    /// [`Stats::flushed_at`] computes the fraction of the number of values. Every value counts with the end of its bin,
    /// so the result is correct within a factor of 2, except for values below 2^-127. 0 if all values are zero, `None`
    /// without a histogram.
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

    /// Returns the largest k, relative to [`Stats::exponent`], at which amax does not overflow; `None` if all values
    /// are zero.
    #[must_use]
    pub const fn headroom_above(&self) -> Option<i32> {
        self.convention.headroom_above(self.counts.amax)
    }
}

/// Reason why two statistics rows cannot merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeError {
    /// The rows differ in convention, so their keys and thresholds differ.
    Convention,
    /// The rows were observed at different exponents.
    Exponent {
        /// Exponent of the left row of the merge.
        left: i32,
        /// Exponent of the right row of the merge.
        right: i32,
    },
    /// One row observed more detail than the other.
    Detail,
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Convention => f.write_str("rows with different flush conventions cannot be merged"),
            Self::Exponent { left, right } => {
                write!(f, "rows observed at the exponents {left} and {right} cannot be merged")
            }
            Self::Detail => f.write_str("a row without a histogram cannot be merged with one that has a histogram"),
        }
    }
}

impl core::error::Error for MergeError {}
