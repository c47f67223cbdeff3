//! Recovery from overflow: repeated attempts, and limits that follow from lost batches.

use super::{
    Calls, Memory, Site, Trigger,
    decision::{ceiling, finite_part},
};
use crate::stats::Stats;

impl Site {
    /// Records that an attempt at the step overflowed and the same batch follows again. Takes the attempt's row, merged
    /// over all micro-batches and calls. [`Site::request`] then returns the mode of the next attempt: decide inside the
    /// step, or, with several calls, store at the exponent decided from this row.
    pub fn repeat(&mut self, row: &Stats) {
        self.note_before();
        self.failed = self.failed.saturating_add(1);
        self.require_ceiling(finite_part(row));
        match self.config.calls {
            Calls::One => self.at_once = true,
            Calls::Several => {
                self.decide_from(row, Trigger::Repeat);
                self.at_once = self.alpha.is_none() || row.counts().non_finite() != 0;
            }
        }
    }

    /// Assumes that the values of this site grew by 2^`excess`. Call it before [`Site::repeat`] or [`Site::finish`] on
    /// sites downstream of the overflow whose row merges several calls or micro-batches, because the first of these
    /// decides for all. The row itself contains only ±∞. Because the backward pass is linear in the loss, the growth at
    /// the overflow also applies here.
    pub fn assume_upstream_growth(&mut self, excess: i64) {
        let least = self.span(None).map(|span| span.min.saturating_sub(excess.max(0)));
        self.require_ceiling(least.filter(|_| excess > 0));
    }

    /// Makes the next attempt leave headroom for values with this ceiling. At a site upstream of the overflow the row
    /// shows how large the values were; downstream only its finite part does.
    pub(super) fn require_ceiling(&mut self, ceiling: Option<i64>) {
        self.required_ceiling = self.required_ceiling.into_iter().chain(ceiling).min();
    }

    /// Returns the number of exponents by which a row exceeds the whole history; 0 if it does not. After a skip,
    /// [`Site::limit_from_upstream`] passes this number to the sites downstream.
    #[must_use]
    pub fn bits_above_history(&self, row: &Stats) -> i64 {
        if self.config.amax.is_some() {
            // An amax history is not a span of exponents that are served together, so nothing is learned from an
            // excess.
            return 0;
        }
        let known = self.span(None).map(|span| span.min);
        known.zip(ceiling(row)).map_or(0, |(least, own)| least.saturating_sub(own).max(0))
    }

    /// Returns true if a finite row exceeds the history by more than the limit ([`super::SiteConfig::outliers`]), so
    /// that its batch is skipped. At the site of the overflow a row that is not finite exceeds every limit.
    #[must_use]
    pub fn is_outlier(&self, row: &Stats) -> bool {
        let (Some(bits), Some(least), true) = (self.config.outliers, self.ring.min(), self.ring.has_enough_samples())
        else {
            return false;
        };
        ceiling(row).is_none_or(|own| least.saturating_sub(own) > i64::from(bits))
    }

    /// Learns from a skipped step at a site downstream of the overflow, where values were larger by 2^`excess`. They
    /// were larger by the same factor here, because the backward pass is linear in the loss. An `excess` above
    /// the spread of the format (24 for FP16) teaches nothing, because no exponent serves both magnitudes. Call it before [`Site::finish`].
    pub fn limit_from_upstream(&mut self, excess: i64) {
        if (1..=self.config.format.max_ceiling_spread()).contains(&excess) {
            if let Some(span) = self.span(None) {
                self.guard.record_lost_batch(span.min.saturating_sub(excess));
            }
        }
    }

    /// Starts a guard against the next batch of this magnitude. It lasts longer than the history, because a skipped
    /// batch is lost.
    pub(super) fn record_lost_batch(&mut self, row: &Stats) {
        if self.config.memory != Memory::Ring {
            return;
        }
        if let Some((own, span)) = ceiling(row).zip(self.span(None)) {
            if own < span.min && span.max.saturating_sub(own) <= self.config.format.max_ceiling_spread() {
                self.guard.record_lost_batch(own);
            }
        }
    }
}
