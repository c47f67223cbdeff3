//! Statistics of a cast while they are accumulated: one accumulator for each chunk of a store, merged in order.
//!
//! Counters, largest magnitude and histogram equal those of core, bit for bit. Values that overflow FP16 or are not
//! finite are rare; blocks that contain one are passed to core.

use crate::{
    Isa,
    arch::{FusedStoreParams, StoreInput, Thresholds},
};
use gradscale_core::{
    stats::{BINS, Convention, Counts, Detail, Moments, Stats},
    store_format::StoreFormat,
};
use half::f16;

/// Number of values that are observed at a time, as in core's sums.
const BLOCK_ELEMENTS: usize = 4096;

/// Returns the thresholds of the counters of a format's statistics row.
const fn thresholds(format: StoreFormat) -> Thresholds {
    let convention = format.convention();
    Thresholds {
        flush: convention.flush_end(),
        subnormal: convention.subnormal_end(),
        overflow: convention.overflow_start(),
    }
}

/// Accumulator of a statistics row. Its keys are those of nearest even, which all formats share.
#[derive(Clone, Debug)]
pub struct StatsAccumulator {
    exponent: i32,
    detail: Detail,
    /// Format whose thresholds the counters have.
    format: StoreFormat,
    /// Counters of values: count, zeros, infinite, NaN, flushed, overflowed, subnormal.
    counts: [u64; 7],
    /// f32 bits of the largest magnitude (amax).
    amax: u32,
    sums: [f64; 4],
    bins: [u32; BINS],
}

impl StatsAccumulator {
    pub const fn new(exponent: i32, detail: Detail, format: StoreFormat) -> Self {
        Self { exponent, detail, format, counts: [0; 7], amax: 0, sums: [0.0; 4], bins: [0; BINS] }
    }

    /// Adds values to the accumulated statistics, as they are before rounding.
    pub fn observe(&mut self, isa: Isa, values: &[f32]) {
        if self.detail == Detail::None {
            return;
        }
        for block in values.chunks(BLOCK_ELEMENTS) {
            let counts = isa.count_values(block, thresholds(self.format));
            if self.add_counts(block.len(), counts) {
                if self.detail >= Detail::Full {
                    isa.add_to_histogram(block, Convention::FP16.key_constant(), &mut self.bins);
                }
            } else {
                self.observe_with_core(block, self.detail.min(Detail::Full));
            }
            if self.detail == Detail::Moments {
                isa.add_moments(block, &mut self.sums);
            }
        }
    }

    /// Writes values times a factor as halves and accumulates their statistics in one pass. Returns false, with nothing
    /// accumulated, if that is not possible.
    pub fn store_fused(&mut self, isa: Isa, values: StoreInput<'_>, factor: f32, y: &mut [f16]) -> bool {
        let params = FusedStoreParams {
            factor,
            detail: self.detail,
            thresholds: thresholds(self.format),
            key_constant: Convention::FP16.key_constant(),
        };
        let counts = isa.store_fused(values, params, y, &mut self.bins, &mut self.sums);
        counts.is_some_and(|counts| self.detail == Detail::None || self.add_counts(values.len(), counts))
    }

    /// Adds the counters of `len` values. Returns false, with nothing added, if one of them overflows.
    fn add_counts(&mut self, len: usize, [zeros, below_flush, below_normal, max_bits]: [u32; 4]) -> bool {
        if max_bits >= thresholds(self.format).overflow {
            return false;
        }
        let new =
            [len as u64, zeros.into(), 0, 0, (below_flush - zeros).into(), 0, (below_normal - below_flush).into()];
        self.counts.iter_mut().zip(new).for_each(|(count, new)| *count += new);
        self.amax = self.amax.max(max_bits);
        true
    }

    fn observe_with_core(&mut self, values: &[f32], detail: Detail) {
        let mut row = Stats::new(self.format.convention(), 0, detail);
        row.observe(values);
        let c = row.counts();
        let new = [c.count, c.zeros, c.infinite, c.nan, c.flushed, c.overflowed, c.subnormal];
        self.counts.iter_mut().zip(new).for_each(|(count, new)| *count += new);
        self.amax = self.amax.max(c.amax.to_bits());
        if let Some(bins) = row.bins() {
            self.bins.iter_mut().zip(bins).for_each(|(bin, new)| *bin += new);
        }
        if let Some(new) = row.moments() {
            let new = [new.sum, new.sum_sq, new.sum_ln, new.sum_ln_sq];
            self.sums.iter_mut().zip(new).for_each(|(sum, new)| *sum += new);
        }
    }

    /// Merges the accumulated statistics of another chunk.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.amax = self.amax.max(other.amax);
        self.sums.iter_mut().zip(other.sums).for_each(|(sum, more)| *sum += more);
        if self.detail >= Detail::Full {
            self.bins.iter_mut().zip(&other.bins).for_each(|(bin, &more)| *bin = bin.saturating_add(more));
        }
    }

    /// Returns the accumulated statistics as a row, which is labelled FP16 like all rows of devices
    /// ([`Stats::counted_in`]).
    pub fn stats(&self) -> Stats {
        let [count, zeros, infinite, nan, flushed, overflowed, subnormal] = self.counts;
        let (amax, exponent) = (f32::from_bits(self.amax), self.exponent);
        let counts = Counts { count, zeros, infinite, nan, flushed, overflowed, subnormal, amax, exponent };
        let [sum, sum_sq, sum_ln, sum_ln_sq] = self.sums;
        let moments = Moments { sum, sum_sq, sum_ln, sum_ln_sq };
        Stats::from_parts(Convention::FP16, self.detail, counts, moments, &self.bins).expect("counts of what was seen")
    }
}
