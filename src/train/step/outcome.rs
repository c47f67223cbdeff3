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
    /// The batch's loss, where that is infinite or NaN: nothing that a scale could mend.
    pub loss: Option<UnusableLoss>,
}

/// Loss that is infinite or NaN, and what the step made of it.
///
/// Two are equal if their values have the same bits, because NaN is one of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnusableLoss {
    /// ±∞ or NaN.
    pub value: f32,
    /// What happened to the exponents.
    pub exponents: ExponentsAfter,
    /// Index of the sample whose loss it is, for a training loop that knows it.
    pub sample: Option<u64>,
}

impl PartialEq for UnusableLoss {
    fn eq(&self, other: &Self) -> bool {
        let parts = |one: &Self| (one.value.to_bits(), one.exponents, one.sample);
        parts(self) == parts(other)
    }
}

/// Exponents after a batch from which nothing can be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExponentsAfter {
    /// All are as they were.
    Kept,
    /// The loss scale took the batch for one that it was too large for.
    LossScale {
        /// Exponent of the step.
        before: i32,
        /// Exponent of the next step.
        after: i32,
    },
    /// Those of some sites changed, by a rule that does not repeat.
    Sites,
}

impl fmt::Display for UnusableLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_nan() { "NaN" } else { "infinite" };
        write!(f, "the loss of this batch is {value}")?;
        if let Some(sample) = self.sample {
            write!(f, " (sample {sample})")?;
        }
        f.write_str(": nothing was learned from it, and ")?;
        match self.exponents {
            ExponentsAfter::Kept => f.write_str("no exponent moved"),
            ExponentsAfter::LossScale { before, after } => {
                write!(f, "the loss scale moved from 2^{before} to 2^{after}, though no scale mends that")
            }
            ExponentsAfter::Sites => f.write_str("exponents of some sites moved, though none mends that"),
        }
    }
}

impl Skipped {
    /// With the index of the sample whose loss is infinite or NaN, which only a training loop can know.
    #[must_use]
    pub fn with_sample(mut self, index: u64) -> Self {
        if let Some(loss) = &mut self.loss {
            loss.sample = Some(index);
        }
        self
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("skipped: ")?;
        match (&self.loss, &self.site) {
            (Some(loss), Some((site, kind))) => {
                write!(f, "{loss}; ")?;
                happened(f, site, *kind, self.exponent)?;
            }
            (Some(loss), None) => loss.fmt(f)?,
            (None, None) => f.write_str("a parameter gradient is not finite")?,
            (None, Some((site, kind))) => happened(f, site, *kind, self.exponent)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(value: f32, exponents: ExponentsAfter) -> Skipped {
        let loss = Some(UnusableLoss { value, exponents, sample: None });
        Skipped { site: None, exponent: 0, cause: Cause::NotFinite, loss }
    }

    #[test]
    fn a_loss_that_is_no_number_is_named() {
        assert_eq!(
            skipped(f32::INFINITY, ExponentsAfter::Kept).to_string(),
            "skipped: the loss of this batch is infinite: nothing was learned from it, and no exponent moved"
        );
        let moved = ExponentsAfter::LossScale { before: 16, after: 15 };
        assert_eq!(
            skipped(f32::NAN, moved).with_sample(4321).to_string(),
            "skipped: the loss of this batch is NaN (sample 4321): nothing was learned from it, and the loss scale moved \
             from 2^16 to 2^15, though no scale mends that"
        );
        let site = Some(("head/out".to_owned(), Kind::Nan));
        let told = Skipped { site, ..skipped(f32::NEG_INFINITY, ExponentsAfter::Sites) }.to_string();
        assert!(
            told.ends_with(
                "exponents of some sites moved, though none mends that; head/out received NaN at 2^0, which is not a scaling \
                 problem"
            ),
            "{told}"
        );
        // A skip of a batch whose loss is finite has no sample.
        let overflow =
            Skipped { site: Some(("a".to_owned(), Kind::Overflow)), loss: None, ..skipped(0.0, ExponentsAfter::Kept) };
        assert_eq!(overflow.clone().with_sample(3), overflow);
        assert_eq!(skipped(f32::NAN, moved), skipped(f32::NAN, moved));
        assert_ne!(skipped(f32::NAN, moved), skipped(f32::INFINITY, moved));
        assert_eq!(overflow.to_string(), "skipped: a overflowed at 2^0");
    }
}
