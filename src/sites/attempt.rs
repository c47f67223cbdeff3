//! End of an attempt at a step: what its rows mean for the step, and for each site.

use super::{Sites, SlotKind};
use crate::Scaling;
use gradscale_core::{
    backend::Slot,
    loss_scale::Feedback,
    scaled::Scaled,
    site::{Calls, Site, SiteOutcome, SitePass},
    stats::Stats,
    step_outcome::{self, FirstNonFinite, NonFiniteKind},
};

/// Reason why a training step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Values were not finite, and no scale cures that; or the method skips every overflow.
    NotFinite,
    /// The batch exceeds the history by more than the method allows (`outliers=`).
    Outlier,
    /// The caller must run the batch again, because its inputs are not all on the device any more.
    Again,
    /// The batch was repeated three times, and overflowed each time.
    Repeats,
}

impl Cause {
    /// Returns the name of the cause in snake case, for bindings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFinite => "not_finite",
            Self::Outlier => "outlier",
            Self::Again => "again",
            Self::Repeats => "repeats",
        }
    }
}

/// Result of an attempt at a step: applied, repeated or skipped. The index of a [`FirstNonFinite`] is that in the order of the
/// stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The step was applied: the parameters are updated.
    Stepped,
    /// The step overflowed and has changed nothing; the same batch is to be run again.
    Repeat(FirstNonFinite),
    /// The step was skipped and has changed nothing, for this cause.
    Skipped(Option<FirstNonFinite>, Cause),
}

/// Properties of an attempt at a step, besides the rows of its stores.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// True if some parameter gradient of the attempt is not finite.
    pub found_inf: bool,
    /// Number of attempts at this step that failed before.
    pub failed: u32,
    /// True if the caller can run the batch again.
    pub repeatable: bool,
    /// Number of micro-batches whose statistics rows were merged.
    pub micro: u32,
}

impl Sites {
    /// Ends an attempt at a step: takes its rows, by slot, and the `order` of their stores. Call it once for each
    /// attempt. The counters of a row are those of its slot's format ([`Sites::format`]), whatever convention it is read
    /// with.
    ///
    /// # Panics
    /// If a slot of `order` has no row.
    pub fn finish(&mut self, rows: &[Stats], order: &[Slot], attempt: Attempt) -> Finished {
        self.decided.clear();
        let rows = &*self.rows_in_formats(rows);
        let row = |slot: Slot| &rows[usize::from(slot.0)];
        let blame = step_outcome::find_first_non_finite(order.iter().map(|&slot| row(slot).counts()));
        let mut largest: Option<Scaled<f32>> = None;
        for &slot in order {
            let entry = &mut self.entries[usize::from(slot.0)];
            entry.row = Some(*row(slot));
            entry.awaits_store = false;
            let counts = row(slot).counts();
            // ±∞ and NaN on input come from the forward pass, or from an overflow that another site has counted.
            entry.overflows = entry.overflows.saturating_add(counts.overflowed);
            if entry.kind == SlotKind::Site && counts.amax > largest.map_or(0.0, |largest| largest.data) {
                largest = Some(Scaled::new(counts.amax, counts.exponent));
            }
        }
        // The gradients may be finite because a function like 1/√∞ hides an overflow.
        let hidden = if attempt.found_inf { None } else { self.blocking_overflow(rows, order, attempt.failed) };
        let blame = hidden.or(blame);
        let finished = match blame {
            _ if !attempt.found_inf && hidden.is_none() => Finished::Stepped,
            blame if !self.repeats() => Finished::Skipped(blame, Cause::NotFinite),
            blame => self.failed(rows, order, blame, attempt),
        };
        // The number of exponents by which the first overflowing site exceeds its history applies to the sites
        // downstream too.
        let excess = match (finished, blame) {
            (Finished::Repeat(_) | Finished::Skipped(_, Cause::Again), Some(blame)) => {
                let slot = order[blame.site];
                // A growth of activations says nothing about gradients.
                let is_gradient = self.kind(slot) == SlotKind::Site;
                self.site(slot).filter(|_| is_gradient).map_or(0, |site| site.bits_above_history(row(slot)))
            }
            _ => 0,
        };
        let repeats = self.repeats();
        for (at, &slot) in order.iter().enumerate() {
            let Some(site) = &mut self.entries[usize::from(slot.0)].site else { continue };
            if site.pass() != SitePass::Backward
                && let (Finished::Repeat(blame), true) = (finished, row(slot).counts().non_finite() == 0)
                && at < blame.site
            {
                // The activations before the overflow were right, and are computed again with the same bits.
                continue;
            }
            let behind = blame.is_some_and(|blame| at > blame.site);
            // A site with one call in one micro-batch decides from its own values.
            if behind && excess > 0 && (attempt.micro > 1 || site.config().calls == Calls::Several) {
                site.assume_upstream_growth(excess);
            }
            let end = match finished {
                Finished::Repeat(_) => {
                    site.repeat(row(slot));
                    continue;
                }
                Finished::Stepped => step_outcome::site_outcome(true, false, blame, at),
                Finished::Skipped(_, cause) => {
                    step_outcome::site_outcome(false, repeats && cause != Cause::Again, blame, at)
                }
            };
            if end == SiteOutcome::SkippedDownstream {
                site.limit_from_upstream(excess);
            }
            site.finish(row(slot), end);
        }
        if finished == Finished::Stepped {
            if attempt.failed > 0 {
                self.record_kept_overflows(rows, order);
            }
            if blame.is_some_and(|blame| self.is_unscaled_overflow(blame, order[blame.site])) {
                // An overflow outside of the guard. The next batch is the first with exponents.
                self.activate_forward();
            }
        }
        self.loss_scale_before = self.loss_scale();
        if let Scaling::Loss(schedule) = &mut self.scaling {
            schedule.update(&Feedback { found_inf: attempt.found_inf, amax: largest });
        }
        self.spread();
        if !matches!(finished, Finished::Repeat(_)) {
            self.settle();
        }
        finished
    }

    /// Records the exponents after a finished step, and whether any of them changed.
    pub(super) fn settle(&mut self) {
        self.settled.resize(self.entries.len(), None);
        self.moved = self.loss_scale_before != self.loss_scale();
        for (entry, settled) in self.entries.iter().zip(&mut self.settled) {
            let alpha = entry.site.as_ref().and_then(Site::alpha);
            self.moved |= *settled != alpha;
            *settled = alpha;
        }
    }

    /// Returns the treatment of a batch with values that are not finite. The first overflow of an activation gives forward
    /// stores exponents, if the method does so.
    fn failed(&mut self, rows: &[Stats], order: &[Slot], blame: Option<FirstNonFinite>, attempt: Attempt) -> Finished {
        let slot = blame.map(|blame| order[blame.site]);
        if let Some(blame) = blame.filter(|blame| self.is_unscaled_overflow(*blame, order[blame.site])) {
            self.activate_forward();
            return if attempt.repeatable {
                Finished::Repeat(blame)
            } else {
                Finished::Skipped(Some(blame), Cause::Again)
            };
        }
        let (Some(blame), Some(slot), Some(site)) = (blame, slot, slot.and_then(|slot| self.site(slot))) else {
            return Finished::Skipped(blame, Cause::NotFinite);
        };
        if blame.kind != NonFiniteKind::Nan && site.is_outlier(&rows[usize::from(slot.0)]) {
            return Finished::Skipped(Some(blame), Cause::Outlier);
        }
        let calls = if attempt.micro > 1 { Calls::Several } else { site.config().calls };
        match (step_outcome::may_repeat(calls, attempt.failed), calls) {
            (true, _) if attempt.repeatable => Finished::Repeat(blame),
            (true, _) => Finished::Skipped(Some(blame), Cause::Again),
            (false, Calls::Several) => Finished::Skipped(Some(blame), Cause::Repeats),
            (false, Calls::One) => Finished::Skipped(Some(blame), Cause::NotFinite),
        }
    }
}
