//! Outcome of a step.

use crate::{NonFiniteKind, SkipCause};
use std::fmt;

/// Next action of a training loop after one pass forward and backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextAction {
    /// Update the parameters, because all gradients are finite.
    Step,
    /// Update nothing, and run the same batch again: its values fit now.
    Repeat,
    /// Update nothing, and continue with the next batch.
    Skip(Skipped),
}

/// Reason why a batch was skipped, which changed nothing in the training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Cause of the skip: no scale cures it, or the method does not repeat.
    pub cause: SkipCause,
    /// First site with values that are not finite. `None` if they appeared after all sites, in f32.
    pub site: Option<NonFiniteSite>,
}

/// First cast site of a pass at which values were not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NonFiniteSite {
    /// Name of the site in the model.
    pub name: String,
    /// Kind of the values: overflow, infinite or NaN.
    pub kind: NonFiniteKind,
    /// Exponent of the site in force.
    pub exponent: i32,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.site {
            None => f.write_str("a gradient of a parameter is not finite, although the gradients at all sites are")?,
            Some(NonFiniteSite { name, kind: NonFiniteKind::Overflow, exponent }) => {
                write!(f, "site {name} overflowed at 2^{exponent}")?
            }
            Some(NonFiniteSite { name, kind: NonFiniteKind::Infinite, .. }) => write!(f, "site {name} received ±∞")?,
            Some(NonFiniteSite { name, kind: NonFiniteKind::Nan, .. }) => {
                write!(f, "site {name} received NaN, which is not a scaling problem")?
            }
        }
        match self.cause {
            SkipCause::Outlier => f.write_str("; it is further above the last steps than the method's outliers allow"),
            SkipCause::Again => f.write_str("; run the same batch again"),
            SkipCause::Repeats => f.write_str("; it was repeated three times"),
            // A value that is not finite has been described above.
            SkipCause::NotFinite => Ok(()),
        }
    }
}

/// Outcome of a training step, with the repeats of its batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step was applied: the parameters are updated, possibly after repeats of the batch.
    Stepped {
        /// Number of repeats of the batch; 0 if the first pass did not overflow.
        repeats: u32,
    },
    /// The step was skipped: parameters and the optimizer's state are unchanged.
    Skipped(Skipped),
}

impl Outcome {
    /// Returns true if the step updated the parameters.
    #[must_use]
    pub const fn stepped(&self) -> bool {
        matches!(self, Self::Stepped { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stepped { repeats: 0 } => f.write_str("stepped"),
            Self::Stepped { repeats } => write!(f, "stepped after {repeats} repeats"),
            Self::Skipped(skipped) => write!(f, "skipped: {skipped}"),
        }
    }
}
