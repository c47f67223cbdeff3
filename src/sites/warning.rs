//! Warnings about a dynamic loss scale that has become too small.

use super::{Sites, SlotKind};
use crate::Scaling;
use gradscale_core::{loss_scale::LossScale, stats::Stats};
use std::fmt;

/// Exponent below which a dynamic scale counts as collapsed. torch's scale starts at 2^16, and the networks of
/// `docs/workloads.md` need at least 2^-10 to keep their gradients.
const LEAST_EXPONENT: i32 = -10;
/// Fraction of the non-zero gradients that may flush because of the scale before a warning.
const MAX_FLUSHED: f64 = 0.01;

/// Warning that a dynamic loss scale is too small.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum LossScaleWarning {
    /// The loss scale has fallen below 2^-10.
    Collapsed {
        /// Exponent of the loss scale in force.
        exponent: i32,
    },
    /// More than 1 % of the non-zero gradients flushed, although a larger scale would have kept them.
    Flushes {
        /// Fraction of the non-zero gradients that the larger scale would have kept.
        share: f64,
        /// Exponent of the loss scale in the step.
        exponent: i32,
        /// Largest exponent at which the step would not have overflowed.
        fits: i32,
    },
}

impl LossScaleWarning {
    /// Returns the name of the warning in snake case, for bindings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Collapsed { .. } => "collapsed",
            Self::Flushes { .. } => "flushes",
        }
    }
}

impl fmt::Display for LossScaleWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collapsed { exponent } => write!(
                f,
                "the loss scale has fallen to 2^{exponent}, because steps were not finite: look for samples whose loss is \
                 infinite or NaN, or set a floor (min=1)"
            ),
            Self::Flushes { share, exponent, fits } => write!(
                f,
                "the loss scale 2^{exponent} flushes {:.1} % of the gradients to zero, and 2^{fits} would still have fitted",
                100.0 * share
            ),
        }
    }
}

impl Sites {
    /// Returns a warning about a dynamic loss scale after the last step. Other methods have none. After a step that was
    /// not finite, only a collapse is reported.
    #[must_use]
    pub fn loss_scale_warning(&self) -> Option<LossScaleWarning> {
        let Scaling::Loss(LossScale::Dynamic(_) | LossScale::Chainer(_)) = &self.scaling else {
            return None;
        };
        let exponent = self.loss_scale();
        if exponent < LEAST_EXPONENT {
            return Some(LossScaleWarning::Collapsed { exponent });
        }
        let sites = self.entries.iter().filter(|entry| entry.kind == SlotKind::Site);
        let rows: Vec<&Stats> = sites.filter_map(|entry| entry.row.as_ref()).collect();
        if rows.iter().any(|row| row.counts().non_finite() != 0) {
            return None;
        }
        let room = rows.iter().filter_map(|row| row.headroom_above()).min().filter(|room| *room > 0)?;
        let nonzero: u64 = rows.iter().map(|row| row.counts().nonzero()).sum();
        // In a row without a histogram, all flushed values count as avoidable.
        let avoidable = |row: &&Stats| {
            let anyway = row.flushed_at(room).map_or(0, |rate| rate.part);
            row.counts().flushed.saturating_sub(anyway)
        };
        let share = rows.iter().map(avoidable).sum::<u64>() as f64 / nonzero.max(1) as f64;
        let exponent = rows.first().map_or(exponent, |row| row.exponent());
        let fits = exponent.saturating_add(room);
        (share > MAX_FLUSHED).then_some(LossScaleWarning::Flushes { share, exponent, fits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Method, sites::Attempt};
    use gradscale_core::stats::{Convention, Detail};

    /// Creates sites after a step in which two of them had these values.
    fn after(method: &str, values: [&[f32]; 2], detail: Detail) -> Sites {
        let method = method.parse::<Method>().unwrap_or_else(|error| panic!("{error}"));
        let mut sites = Sites::new(method.scaling).expect("a method");
        let slots = ["a", "b"].map(|name| sites.slot(name, SlotKind::Site).expect("room"));
        let mut rows = vec![Stats::new(Convention::FP16, 0, detail); sites.len()];
        for (slot, values) in slots.iter().zip(values) {
            let alpha = sites.exponent(*slot);
            let mut row = Stats::new(Convention::FP16, alpha, detail);
            row.observe(&values.iter().map(|value| value * 2f32.powi(alpha)).collect::<Vec<_>>());
            rows[usize::from(slot.0)] = row;
        }
        let found_inf = rows.iter().any(|row| row.counts().overflowed + row.counts().non_finite() != 0);
        sites.finish(&rows, &slots, Attempt { found_inf, failed: 0, repeatable: false, micro: 1 });
        sites
    }

    #[test]
    fn a_scale_that_has_collapsed() {
        let warned = |start: i32| {
            let sites = after(&format!("dynamic:init=2^{start}"), [&[f32::NAN], &[1.0]], Detail::Counts);
            sites.loss_scale_warning()
        };
        assert_eq!(warned(-10), Some(LossScaleWarning::Collapsed { exponent: -11 }));
        assert_eq!(warned(-9), None);
    }

    #[test]
    fn gradients_that_flush_because_of_the_scale() {
        // Two of four are below 2^-25 at scale 1, and 2^15 would keep all four.
        let values: [&[f32]; 2] = [&[1.0, 2f32.powi(-26)], &[-2f32.powi(-30), 1.5]];
        for detail in [Detail::Counts, Detail::Full] {
            let warned = after("dynamic:init=1", values, detail).loss_scale_warning();
            assert_eq!(warned, Some(LossScaleWarning::Flushes { share: 0.5, exponent: 0, fits: 15 }));
        }
        let text = LossScaleWarning::Flushes { share: 0.5, exponent: 0, fits: 15 }.to_string();
        assert_eq!(
            text,
            "the loss scale 2^0 flushes 50.0 % of the gradients to zero, and 2^15 would still have fitted"
        );
        // No scale keeps both ends, so the flushed values are unavoidable.
        let wide: [&[f32]; 2] = [&[60000.0, 2f32.powi(-26)], &[-2f32.powi(-30), 1.5]];
        assert_eq!(after("dynamic:init=1", wide, Detail::Full).loss_scale_warning(), None);
        let far: [&[f32]; 2] = [&[1.0, 2f32.powi(-60)], &[-2f32.powi(-60), 1.5]];
        assert_eq!(after("dynamic:init=1", far, Detail::Full).loss_scale_warning(), None);
        // A scale that is not dynamic was chosen by the user.
        for method in ["fixed:1", "fp16", "gs:history=0", "amax:history=4"] {
            assert_eq!(after(method, values, Detail::Full).loss_scale_warning(), None, "{method}");
        }
    }
}
