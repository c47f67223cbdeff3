//! When and how a site decides.

use crate::{
    solve::{Amax, ConfigError, Exact},
    stats::Detail,
};

/// When the exponent of an update takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum When {
    /// From the row of one step for the next: no wait inside a backward pass.
    Between,
    /// In the same step, before the store: every update of the paper's rules.
    AtOnce,
}

/// How often the operator runs in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calls {
    /// Once.
    One,
    /// Several times (a recurrent cell, a shared head): the calls share the exponent and their rows merge. Such a
    /// site decides at once, from its first call, only in the first step, or where its row was not finite; after
    /// another skip it takes the exponent decided from its merged rows.
    Several,
}

/// What a decision knows of the rows before the one that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Nothing: the rule before a batch could be repeated.
    None,
    /// The least k_of of the last 16 rows limits it, too: for heavy-tailed gradients.
    Least,
    /// The ceilings of the last 16 rows: the exponent serves all that FP16 can serve together, and the room above
    /// follows how much they move. Made for batches that are repeated when they do not fit ([`super::Site::repeat`]);
    /// after a skip, a guard remembers longer ([`super::Guard`]).
    Ring,
}

/// How a site decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Optimizer steps from one update to the next, at least 1.
    pub interval: u32,
    /// When an update takes effect.
    pub when: When,
    /// How often the operator runs in one step.
    pub calls: Calls,
    /// What is remembered of the last rows.
    pub memory: Memory,
    /// Batches that lie more than so many exponents above all rows remembered are left out, although finite; from 8
    /// to 100. A departure from what f32 does. Needs [`Memory::Ring`].
    pub outliers: Option<i32>,
    /// The rule, its threshold, window and room: under [`Memory::Ring`] the most room. Under [`When::AtOnce`] the
    /// caller brings its own decisions.
    pub exact: Exact,
    /// Rule that decides from largest magnitudes instead of `exact`, in every step. Needs [`Memory::None`] and
    /// [`When::Between`]; `interval` is not read. Batches that overflow are skipped, since Transformer Engine has no repeat
    /// either; see [`super::Site::finish`].
    pub amax: Option<Amax>,
}

impl SiteConfig {
    /// `exact` for FP16, every 10 optimizer steps, between them, with the memory of a ring.
    #[must_use]
    pub const fn exact() -> Self {
        Self { memory: Memory::Ring, ..Self::exact_alone() }
    }

    /// `exact` from each row alone, which was the default before there was a ring.
    #[must_use]
    pub const fn exact_alone() -> Self {
        Self {
            interval: 10,
            when: When::Between,
            calls: Calls::One,
            memory: Memory::None,
            outliers: None,
            exact: Exact::FP16,
            amax: None,
        }
    }

    /// Per-tensor scales from largest magnitudes, as FP8 libraries have them.
    #[must_use]
    pub const fn amax(amax: Amax) -> Self {
        Self { interval: 1, amax: Some(amax), ..Self::exact_alone() }
    }

    /// For the paper's rules: every 100 optimizer steps, at once (paper, §5.1).
    #[must_use]
    pub const fn paper() -> Self {
        Self { interval: 100, when: When::AtOnce, ..Self::exact_alone() }
    }

    /// That the numbers make sense.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        match self.outliers {
            _ if self.interval == 0 => Err(ConfigError::Interval),
            _ if self.amax.is_some()
                && (self.memory, self.when, self.outliers) != (Memory::None, When::Between, None) =>
            {
                Err(ConfigError::Amax)
            }
            Some(bits) if !(8..=100).contains(&bits) => Err(ConfigError::Outliers(bits)),
            _ => Ok(()),
        }
    }

    /// Whether a batch that overflowed at a site is repeated.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.memory == Memory::Ring && self.when == When::Between
    }

    /// Whether the row of each step decides for the next, and none inside its own step: delayed scaling.
    pub(super) fn is_delayed(&self) -> bool {
        self.amax.is_some_and(|amax| amax.history() != 0)
    }

    /// What a row must hold for an update.
    pub(super) const fn detail(&self) -> Detail {
        match (self.amax, self.when) {
            (Some(_), _) => Detail::Counts,
            (None, When::Between) => Detail::Full,
            (None, When::AtOnce) => Detail::Moments,
        }
    }
}
