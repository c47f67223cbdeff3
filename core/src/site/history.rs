//! Recorded decisions of a site, with their reasons.

use crate::solve::Choice;
use core::fmt;

/// Number of decisions that a site records.
pub const HISTORY: usize = 8;

/// Reason why a site decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// The site had no exponent.
    First,
    /// The update interval was over.
    Interval,
    /// The site overflowed, or precedes the site that did.
    Overflow,
    /// The last step was skipped, or its row contained ∞, or its values were far below those of the history.
    AfterSkip,
    /// The batch overflowed and is repeated.
    Repeat,
}

/// Recorded decision of a site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Exponent before the decision.
    pub before: Option<i32>,
    /// Exponent that was decided.
    pub alpha: i32,
    /// Choice of the rule: k relative to the exponent of the row, its limit, the predicted γ.
    pub choice: Choice,
    /// Reason for the decision.
    pub trigger: Trigger,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.trigger {
            Trigger::First => "first",
            Trigger::Interval => "interval",
            Trigger::Overflow => "overflow",
            Trigger::AfterSkip => "after a skip",
            Trigger::Repeat => "repeat",
        };
        match self.before {
            Some(before) => write!(f, "2^{before} → 2^{}", self.alpha)?,
            None => write!(f, "2^{}", self.alpha)?,
        }
        write!(f, " ({why}; bound by {}", self.choice.held)?;
        if self.choice.gamma.is_nan() { f.write_str(")") } else { write!(f, "; γ {:.1e})", self.choice.gamma) }
    }
}
