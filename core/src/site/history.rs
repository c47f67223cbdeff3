//! Recorded decisions of a site, with their reasons.

use crate::solve::Choice;
use core::fmt;

/// Number of decisions that a site records for display.
pub const DECISION_HISTORY_LEN: usize = 8;

/// Reason why a site decided on an exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// First decision: the site had no exponent.
    First,
    /// Regular decision: the update interval of the site was over.
    Interval,
    /// Decision after an overflow at the site, or at one after it in the backward pass.
    Overflow,
    /// Decision after a skip: the last step was skipped, or its row contained ∞, or its values were far below those of
    /// the history.
    AfterSkip,
    /// Decision in a repeat: the batch overflowed and is run again.
    Repeat,
}

/// Recorded decision of a site on its exponent, with the reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Exponent of the site before the decision.
    pub before: Option<i32>,
    /// Exponent of the site after the decision.
    pub alpha: i32,
    /// Choice of the rule: k relative to the exponent of the row, its limit, the predicted γ.
    pub choice: Choice,
    /// Event that caused the site to decide.
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
