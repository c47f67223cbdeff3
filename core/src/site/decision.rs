//! Decision of a site: from its row, and from the history of earlier rows.

use super::{
    Decision, Memory, Site, SitePass, Trigger, When,
    ceiling_history::{CeilingWindow, push},
};
use crate::{
    solve::{Choice, HeadroomConstraints, NoDecision},
    stats::Stats,
};

/// Headroom that each repeat after the first adds, in bits. It applies to sites with several calls, because a later call
/// may be larger than the values of the decision.
const EXTRA_HEADROOM_PER_RETRY: i64 = 8;

/// Share of non-zero activations that may flush for the sake of larger ones. Half, because the values of which there are
/// more are then lost; networks whose largest activation is 2^20 times the median flush below 1 %.
const MAX_FORWARD_FLUSH_SHARE: f64 = 0.5;

impl Site {
    /// Decides the exponent for the next step from the row of the last one.
    pub(super) fn decide_from(&mut self, row: &Stats, trigger: Trigger) {
        if self.config.when == When::AtOnce {
            // The caller's model needs more than this row.
            self.at_once |= trigger == Trigger::Overflow;
            return;
        }
        let verdict = match self.exact(row) {
            // A row without histogram: lower the exponent by amax, and decide from the next full row.
            Err(NoDecision::Detail) => {
                self.steps_since_update = self.config.interval;
                if self.pass != SitePass::Backward {
                    // Only a histogram tells activations from a mask.
                    return;
                }
                let lower = match (self.config.memory, self.headroom(row)) {
                    (Memory::Ring, Some(above)) => self.config.exact.lower_within(row, &above),
                    (Memory::None | Memory::Least, _) | (_, None) => self.config.exact.lower(row),
                };
                if let Ok(choice) = lower {
                    self.set(choice, row.exponent(), trigger);
                }
                return;
            }
            verdict => verdict,
        };
        if let Ok(choice) = verdict {
            self.set(choice, row.exponent(), trigger);
            self.steps_since_update = 1;
        }
    }

    /// Computes a decision of the site's own rule, from `row` and the history. The rule is the exact one or
    /// [`super::SiteConfig::amax`].
    ///
    /// # Errors
    /// [`NoDecision`] if the row decides nothing.
    pub fn exact(&self, row: &Stats) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        if let Some(amax) = self.config.amax {
            return self.decide_by_amax(amax, row).ok_or(NoDecision::Empty);
        }
        let above = self.headroom(row).ok_or(NoDecision::Empty)?;
        self.config.exact.decide_within(row, &above)
    }

    /// Computes the headroom constraints of a decision from `row`. `None` if all values are zero.
    fn headroom(&self, row: &Stats) -> Option<HeadroomConstraints> {
        let own = finite_part(row)?;
        let room = self.config.exact.headroom();
        let relative = |ceiling: i64| narrow(ceiling.saturating_sub(i64::from(row.exponent())));
        Some(match self.config.memory {
            Memory::None => {
                HeadroomConstraints { max_no_overflow: relative(own), headroom_bits: room, lift: 0, outlier_cap: None }
            }
            Memory::Least => {
                let least = self.ring.min().map_or(own, |past| past.min(own));
                HeadroomConstraints {
                    max_no_overflow: relative(least),
                    headroom_bits: room,
                    lift: 0,
                    outlier_cap: None,
                }
            }
            Memory::Ring => {
                let alone = CeilingWindow { min: own, max: own, has_enough_samples: false };
                let spread = self.config.format.max_ceiling_spread();
                let span = self.ring.window(Some(own), spread).filter(|span| span.contains(own)).unwrap_or(alone);
                let guard = self.guard.limit().filter(|limit| span.max.saturating_sub(*limit) <= spread + 2);
                let further = EXTRA_HEADROOM_PER_RETRY.saturating_mul(i64::from(self.failed.saturating_sub(1)));
                let tried = self.required_ceiling.map(|tried| tried.saturating_sub(further));
                let least = guard.into_iter().chain(tried).fold(span.min, i64::min);
                let moved = narrow(span.max.saturating_sub(least));
                let room = if span.has_enough_samples { moved.saturating_add(2).max(2).min(room) } else { room };
                // `clamp` would link its panic for crossed bounds.
                let lift = narrow(span.max.saturating_sub(own).max(0).min(spread));
                HeadroomConstraints {
                    max_no_overflow: relative(least),
                    headroom_bits: room,
                    lift,
                    outlier_cap: self.config.outliers,
                }
            }
        })
    }

    pub(super) fn set(&mut self, choice: Choice, measured_at: i32, trigger: Trigger) {
        let alpha = measured_at.saturating_add(choice.k);
        let alpha = match self.pass {
            SitePass::Backward | SitePass::Forward { raises: true } if alpha >= 0 => alpha,
            SitePass::Backward => alpha,
            // Large values would flush most others. They are a mask, for example of −10^38, and stay infinite.
            SitePass::Forward { .. } if choice.gamma > MAX_FORWARD_FLUSH_SHARE => 0,
            SitePass::Forward { .. } => alpha.min(0),
        };
        push(&mut self.history, Decision { before: self.alpha, alpha, choice, trigger });
        self.alpha = Some(alpha);
    }
}

/// Returns the ceiling of a row: the absolute exponent above which it overflows. `None` if all values are zero or one
/// is not finite.
pub(super) fn ceiling(row: &Stats) -> Option<i64> {
    if row.counts().non_finite() == 0 { finite_part(row) } else { None }
}

/// Returns the ceiling of the finite values of a row.
pub(super) fn finite_part(row: &Stats) -> Option<i64> {
    row.headroom_above().map(|k_of| i64::from(row.exponent()).saturating_add(i64::from(k_of)))
}

#[expect(clippy::cast_possible_truncation, reason = "clamped")]
pub(super) fn narrow(exponent: i64) -> i32 {
    exponent.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}
