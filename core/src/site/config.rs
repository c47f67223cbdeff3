//! When and how a site decides.

use crate::{solve::Exact, stats::Detail};

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

/// How a site decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteConfig {
    /// Optimizer steps from one update to the next, at least 1.
    pub interval: u32,
    /// When an update takes effect.
    pub when: When,
    /// How often the operator runs in one step.
    pub calls: Calls,
    /// Whether the overflow side takes the least k_of of the last 16 steps: for heavy-tailed gradients.
    pub amax_history: bool,
    /// The rule, its threshold, window and room. Under [`When::AtOnce`] the caller brings its own decisions.
    pub exact: Exact,
}

impl SiteConfig {
    /// `exact` for FP16, every 10 optimizer steps, between them.
    #[must_use]
    pub const fn exact() -> Self {
        Self { interval: 10, when: When::Between, calls: Calls::One, amax_history: false, exact: Exact::FP16 }
    }

    /// For the paper's rules: every 100 optimizer steps, at once (paper, §5.1).
    #[must_use]
    pub const fn paper() -> Self {
        Self { interval: 100, when: When::AtOnce, ..Self::exact() }
    }

    /// What a row must hold for an update.
    pub(super) const fn detail(&self) -> Detail {
        match self.when {
            When::Between => Detail::Full,
            When::AtOnce => Detail::Moments,
        }
    }
}
