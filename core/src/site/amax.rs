//! Per-tensor scales from largest magnitudes: the current and delayed scaling of FP8 libraries.

use super::{
    CEILING_HISTORY_LEN, Calls, Site, SiteOutcome, Trigger,
    ceiling_history::CeilingHistory,
    decision::{ceiling, narrow},
};
use crate::{
    solve::{Amax, Choice},
    stats::Stats,
};

// An amax history fits into the site's ring.
const _: () = assert!(crate::solve::AMAX_ROWS as usize == CEILING_HISTORY_LEN);

impl Site {
    /// Decides a site's exponent by the amax rule, from `row` and the rows in the history. `None` if all values are
    /// zero or one is not finite.
    pub(super) fn decide_by_amax(&self, amax: Amax, row: &Stats) -> Option<Choice> {
        let mut last = self.ring.clone();
        last.push(ceiling(row)?);
        let least = least_of_last(&last, amax)?;
        Some(amax.decide_below(narrow(least.saturating_sub(i64::from(row.exponent())))))
    }

    /// Adds the row of a step, skipped or not, to the history, and decides for the next step.
    ///
    /// Current scaling decides inside the next step instead. A site with several calls cannot, because later calls may
    /// be larger than the first; there the merged row of the last step decides, as with a history of 1.
    pub(super) fn follow_amax(&mut self, amax: Amax, row: &Stats, end: SiteOutcome) {
        self.before = None;
        self.failed = 0;
        if end == SiteOutcome::RolledBack {
            return;
        }
        self.steps_since_update = self.steps_since_update.saturating_add(1);
        let Some(own) = ceiling(row) else {
            self.at_once = self.decides_currently(amax) || self.alpha.is_none() && !self.config.is_delayed();
            return;
        };
        let choice = self.decide_by_amax(amax, row);
        self.ring.push(own);
        self.at_once = self.decides_currently(amax);
        if let (Some(choice), false) = (choice, self.at_once) {
            let trigger = match self.alpha {
                None => Trigger::First,
                Some(_) if row.counts().overflowed != 0 => Trigger::Overflow,
                Some(_) => Trigger::Interval,
            };
            self.set(choice, row.exponent(), trigger);
            self.steps_since_update = 1;
        }
    }

    fn decides_currently(&self, amax: Amax) -> bool {
        amax.history() == 0 && self.config.calls == Calls::One
    }
}

/// Returns the lowest ceiling among the last rows that the amax rule's history includes.
fn least_of_last(ring: &CeilingHistory, amax: Amax) -> Option<i64> {
    let rows = usize::try_from(amax.history().max(1)).unwrap_or(CEILING_HISTORY_LEN);
    let skipped = ring.iter().count().saturating_sub(rows);
    ring.iter().skip(skipped).min()
}
