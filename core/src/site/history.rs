//! What was decided, and why.

use crate::solve::Choice;
use core::fmt;

/// Decisions that a site remembers.
pub const HISTORY: usize = 8;

/// What made a site decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// It had no exponent.
    First,
    /// Its interval was over.
    Interval,
    /// It overflowed, or came before the site that did.
    Overflow,
    /// The last step was skipped, or its row held ∞, or lay far below those before.
    AfterSkip,
    /// The batch did not fit, and is repeated.
    Repeat,
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The exponent before.
    pub before: Option<i32>,
    /// The exponent decided.
    pub alpha: i32,
    /// The choice: k relative to the exponent of the row, what bound it, the predicted γ.
    pub choice: Choice,
    /// What made the site decide.
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
