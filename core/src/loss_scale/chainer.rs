//! The paper's dynamic baseline, as implemented in its framework, Chainer.

use super::{Bounds, ScheduleError};
use crate::fraction::Fraction;

/// Loss scale of Chainer. It starts at 1, doubles in every step until the first overflow, then grows by 2^(1/interval)
/// in every step; an overflow halves it. With the interval of 10 of the authors' runs about every eleventh step
/// overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chainer {
    pub(super) bounds: Bounds,
    pub(super) scale: Fraction,
    /// True until the first overflow: the scale doubles in every step.
    pub(super) doubling: bool,
}

impl Chainer {
    /// Creates Chainer's loss-scale schedule in its initial state, 2^0.
    ///
    /// # Errors
    /// [`ScheduleError::Interval`] for 0, [`ScheduleError::Start`] if the bounds exclude 2^0.
    pub fn new(interval: u32, bounds: Bounds) -> Result<Self, ScheduleError> {
        if interval == 0 {
            return Err(ScheduleError::Interval);
        }
        if bounds.clamp(0) != 0 {
            return Err(ScheduleError::Start(0));
        }
        Ok(Self { bounds, scale: Fraction::new(0, interval), doubling: true })
    }

    /// Returns the number of steps in which Chainer's loss scale doubles after the first overflow.
    #[must_use]
    pub const fn interval(&self) -> u32 {
        self.scale.per_exponent()
    }

    /// Returns the minimum and maximum exponent of Chainer's loss scale.
    #[must_use]
    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Returns the loss-scale exponent in force: the floor of the fractional exponent in the state.
    #[must_use]
    pub const fn exponent(&self) -> i32 {
        self.scale.exponent()
    }

    /// Updates Chainer's loss scale after a step: it grows, or halves if `found_inf`.
    pub fn update(&mut self, found_inf: bool) {
        let whole = i64::from(self.scale.per_exponent());
        let by = match (found_inf, self.doubling) {
            (true, _) => -whole,
            (false, true) => whole,
            (false, false) => 1,
        };
        self.doubling &= !found_inf;
        self.scale = self.scale.with_units(self.scale.units() + by, self.bounds.least(), self.bounds.most());
    }
}
