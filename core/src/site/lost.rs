//! Recovery from overflow: repeated attempts, and limits that follow from lost batches.

use super::{
    Calls, MAX_CEILING_SPREAD, Memory, Site, Trigger,
    decision::{ceiling, finite_part},
};
use crate::stats::Stats;

impl Site {
    /// An attempt at the step overflowed, and the same batch follows again. Takes the attempt's row, all micro-batches
    /// and calls merged; [`Site::request`] then says what the next attempt does: decide at once, or, with several calls,
    /// store at the exponent decided from this row.
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

    /// Before [`Site::repeat`] or [`Site::finish`], of a site behind the one that overflowed, where rows of several
    /// calls or micro-batches merge and the first of these decides at once for all: values that were larger by 2^excess
    /// there are so here, because the backward pass is linear in the loss. What was seen here is ∞.
    pub fn expect(&mut self, excess: i64) {
        let least = self.ring.window(None).map(|span| span.min.saturating_sub(excess.max(0)));
        self.require_ceiling(least.filter(|_| excess > 0));
    }

    /// Makes the next attempt leave headroom for values with this ceiling. Before the overflow the row shows how large the
    /// values were; after it only their finite part does.
    pub(super) fn require_ceiling(&mut self, ceiling: Option<i64>) {
        self.required_ceiling = self.required_ceiling.into_iter().chain(ceiling).min();
    }

    /// By how many exponents a row lies above all that the site remembers; 0 if it does not. The number by which a skip
    /// teaches the sites behind this one ([`Site::learn`]).
    #[must_use]
    pub fn excess(&self, row: &Stats) -> i64 {
        if self.config.amax.is_some() {
            // Its history is no span of exponents that are served together, and nothing is learned from an excess.
            return 0;
        }
        let known = self.ring.window(None).map(|span| span.min);
        known.zip(ceiling(row)).map_or(0, |(least, own)| least.saturating_sub(own).max(0))
    }

    /// Whether a finite row lies so far above all that is remembered that its batch is to be left out
    /// ([`super::SiteConfig::outliers`]). A row that is not finite, at a site that is to blame, lies further above than any
    /// limit.
    #[must_use]
    pub fn is_outlier(&self, row: &Stats) -> bool {
        let (Some(bits), Some(least), true) = (self.config.outliers, self.ring.min(), self.ring.has_enough_samples())
        else {
            return false;
        };
        ceiling(row).is_none_or(|own| least.saturating_sub(own) > i64::from(bits))
    }

    /// Of a step that was skipped, at a site behind the one that overflowed: its values were larger by 2^excess there,
    /// and so here, because the backward pass is linear in the loss. Beyond 24 it says nothing: FP16 could not serve
    /// both. Before [`Site::finish`].
    pub fn learn(&mut self, excess: i64) {
        if let Some(span) = self.ring.window(None)
            && 0 < excess
            && excess <= MAX_CEILING_SPREAD
        {
            self.guard.record_lost_batch(span.min.saturating_sub(excess));
        }
    }

    /// Guards against the next batch of this size, longer than the history lasts, because a skipped batch is lost.
    pub(super) fn record_lost_batch(&mut self, row: &Stats) {
        if self.config.memory == Memory::Ring
            && let Some((own, span)) = ceiling(row).zip(self.ring.window(None))
            && own < span.min
            && span.max.saturating_sub(own) <= MAX_CEILING_SPREAD
        {
            self.guard.record_lost_batch(own);
        }
    }
}
