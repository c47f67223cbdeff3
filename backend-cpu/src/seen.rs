//! What a part of a store saw: a row of statistics while it grows.
//!
//! Counters, largest magnitude and histogram are core's, bit for bit. Values that are too large for a half, or not
//! finite, are rare; blocks with one are left to core.

use crate::{Isa, arch::Limits};
use gradscale_core::stats::{BINS, Convention, Counts, Detail, Moments, Stats};

/// Values that are observed at a time, as in core's sums.
const BLOCK: usize = 4096;

/// A growing row of the convention of half.
#[derive(Clone, Debug)]
pub struct Seen {
    exponent: i32,
    detail: Detail,
    /// Count, zeros, infinite, NaN, flushed, overflowed, subnormal.
    counts: [u64; 7],
    /// Bits of the largest magnitude.
    amax: u32,
    sums: [f64; 4],
    bins: [u32; BINS],
}

impl Seen {
    pub const fn new(exponent: i32, detail: Detail) -> Self {
        Self { exponent, detail, counts: [0; 7], amax: 0, sums: [0.0; 4], bins: [0; BINS] }
    }

    /// Adds values.
    pub fn observe(&mut self, isa: Isa, values: &[f32]) {
        const LIMITS: Limits = Limits {
            flush: Convention::FP16.flush_end(),
            subnormal: Convention::FP16.subnormal_end(),
            overflow: Convention::FP16.overflow_start(),
        };
        if self.detail == Detail::None {
            return;
        }
        for block in values.chunks(BLOCK) {
            let [zeros, small, low, most] = isa.count(block, LIMITS);
            if most >= LIMITS.overflow {
                self.observe_with_core(block, self.detail.min(Detail::Full));
            } else {
                let new = [block.len() as u64, zeros.into(), 0, 0, (small - zeros).into(), 0, (low - small).into()];
                self.counts.iter_mut().zip(new).for_each(|(count, new)| *count += new);
                self.amax = self.amax.max(most);
                if self.detail >= Detail::Full {
                    isa.histogram(block, Convention::FP16.key_constant(), &mut self.bins);
                }
            }
            if self.detail == Detail::Moments {
                isa.moments(block, &mut self.sums);
            }
        }
    }

    fn observe_with_core(&mut self, values: &[f32], detail: Detail) {
        let mut row = Stats::new(Convention::FP16, 0, detail);
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

    /// The row.
    pub fn stats(&self) -> Stats {
        let [count, zeros, infinite, nan, flushed, overflowed, subnormal] = self.counts;
        let (amax, exponent) = (f32::from_bits(self.amax), self.exponent);
        let counts = Counts { count, zeros, infinite, nan, flushed, overflowed, subnormal, amax, exponent };
        let [sum, sum_sq, sum_ln, sum_ln_sq] = self.sums;
        let moments = Moments { sum, sum_sq, sum_ln, sum_ln_sq };
        Stats::from_parts(Convention::FP16, self.detail, counts, moments, &self.bins).expect("counts of what was seen")
    }
}
