//! How a step ended, as a value.

use crate::sites::Cause;
use gradscale_core::step::Kind;
use std::fmt;

/// Why a step was skipped. Parameters, optimizer state, step counts, schedules and running statistics are as before.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// The first site at which values stopped being finite, and what happened there; none if they did in f32, between
    /// the last site and a parameter.
    pub site: Option<(String, Kind)>,
    /// The exponent in force there.
    pub exponent: i32,
    /// Why it was not repeated.
    pub cause: Cause,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("skipped: ")?;
        match &self.site {
            None => f.write_str("a parameter gradient is not finite")?,
            Some((site, kind)) => happened(f, site, *kind, self.exponent)?,
        }
        f.write_str(match self.cause {
            Cause::NotFinite => "",
            Cause::Outlier => ", far above all steps before (outliers)",
            Cause::Again => "; run the same batch again",
            Cause::Repeats => ", after three repeats",
        })
    }
}

/// An attempt at a step that overflowed: the batch was run again, at exponents that fit it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// The first site at which values stopped being finite.
    pub site: String,
    /// What happened there.
    pub kind: Kind,
    /// The exponent in force there.
    pub exponent: i32,
    /// By how many exponents that was too high for the batch; none if the batch is not finite at any.
    pub excess: Option<i32>,
}

impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("repeated: ")?;
        happened(f, &self.site, self.kind, self.exponent)?;
        self.excess.map_or(Ok(()), |excess| write!(f, ", by 2^{excess}"))
    }
}

fn happened(f: &mut fmt::Formatter<'_>, site: &str, kind: Kind, at: i32) -> fmt::Result {
    match kind {
        Kind::Overflow => write!(f, "{site} overflowed at 2^{at}"),
        Kind::Infinite => write!(f, "{site} received ±∞ at 2^{at}, though nothing before it overflowed"),
        Kind::Nan => write!(f, "{site} received NaN at 2^{at}, which is not a scaling problem"),
    }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// The loss before the step; over several micro-batches their sum.
    pub loss: f32,
    /// None if the parameters were updated.
    pub skipped: Option<Skipped>,
    /// Attempts before the last, each of which overflowed: none as a rule, one where a batch did not fit.
    pub repeated: Vec<Repeated>,
    /// Norm of all gradients, if the step clips by it.
    pub gradient_norm: Option<f32>,
    /// Under Adam, parameters whose largest gradient is below eps: their updates are smaller than the learning rate
    /// promises.
    pub below_eps: Vec<String>,
}
