//! What changes from step to step.

use crate::{scaled::Scaled, stats::Detail};

/// Index of one exponent and one row of statistics. Every cast site, every observed forward store and every parameter
/// gradient owns one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// Exponent 0 for ever: data that is not scaled.
    pub const ONE: Self = Self(0);
    /// Scratch of decisions made at once.
    pub const PROBE: Self = Self(1);
    /// The first that an engine may give to a site.
    pub const FIRST: Self = Self(2);
}

impl<T> Scaled<T, Slot> {
    /// The same tuple with its exponent looked up; `None` for a slot beyond the table.
    #[must_use]
    pub fn resolve(self, exponents: &[i32]) -> Option<Scaled<T>> {
        let alpha = *exponents.get(usize::from(self.alpha.0))?;
        Some(Scaled { data: self.data, alpha })
    }
}

/// Index of one f32 that may change from step to step: a learning rate, a bias correction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dial(pub u16);

/// What the host decides before a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control<'a> {
    /// Accumulated exponent of every slot; the first is 0.
    pub exponents: &'a [i32],
    /// Value of every dial.
    pub dials: &'a [f32],
    /// Seed of the step (dropout).
    pub seed: u64,
    /// The most that any store observes in this step.
    pub detail: Detail,
}
