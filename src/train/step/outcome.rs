//! Outcome of a step: updated, skipped or retried.

use crate::sites::Cause;
use gradscale_core::step_outcome::NonFiniteKind;
use std::fmt;

/// Reason why a step was skipped. Parameters, optimizer state, step counts, schedules and running statistics do not
/// change.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// First site where values were not finite, and the kind of failure. `None` if that happened in f32, between the
    /// last site and a parameter.
    pub site: Option<(String, NonFiniteKind)>,
    /// Exponent of that site in the failed attempt; 0 without a site.
    pub exponent: i32,
    /// Reason why the batch was not repeated.
    pub cause: Cause,
    /// Loss of the batch, if it is infinite or NaN. No scale can cure that.
    pub loss: Option<UnusableLoss>,
}

/// Loss that is infinite or NaN, and its effect on the exponents.
///
/// Two are equal if their values have the same bits, because NaN is not equal to itself.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnusableLoss {
    /// Value of the loss: ±∞ or NaN.
    pub value: f32,
    /// Effect of the step on the exponents.
    pub exponents: ExponentsAfter,
    /// Index of the sample with that loss, if the training loop has set it.
    pub sample: Option<u64>,
}

impl PartialEq for UnusableLoss {
    fn eq(&self, other: &Self) -> bool {
        let parts = |one: &Self| (one.value.to_bits(), one.exponents, one.sample);
        parts(self) == parts(other)
    }
}

/// State of the exponents after a batch whose loss is infinite or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExponentsAfter {
    /// No exponent has changed.
    Kept,
    /// The loss scale has changed, because it treats every overflow as too large a scale.
    LossScale {
        /// Exponent of the loss scale in the failed step.
        before: i32,
        /// Exponent of the loss scale in the next step.
        after: i32,
    },
    /// Exponents of some sites have changed, by a rule that does not repeat.
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
            ExponentsAfter::Kept => f.write_str("no exponent changed"),
            ExponentsAfter::LossScale { before, after } => {
                write!(f, "the loss scale changed from 2^{before} to 2^{after}, although no scale can fix this loss")
            }
            ExponentsAfter::Sites => f.write_str("exponents of some sites changed, although none can fix this loss"),
        }
    }
}

impl Skipped {
    /// Sets the index of the sample whose loss is infinite or NaN, which only a training loop knows.
    #[must_use]
    pub fn with_sample(mut self, index: u64) -> Self {
        if let Some(loss) = &mut self.loss {
            loss.sample = Some(index);
        }
        self
    }

    /// Writes which values were not finite, and the remedy if they are activations.
    fn describe_site(&self, f: &mut fmt::Formatter<'_>, site: &str, kind: NonFiniteKind) -> fmt::Result {
        write_failure(f, site, kind, self.exponent)?;
        let layer = site.strip_suffix("/forward").filter(|_| kind == NonFiniteKind::Overflow);
        match (layer.map(|layer| (layer, layer.strip_suffix("/cast"))), self.cause) {
            (None, _) | (_, Cause::Outlier | Cause::Again) => Ok(()),
            // An input, a parameter or a value that another layer keeps in f32.
            (Some((_, Some(value))), _) => {
                write!(f, ": {value} has values too large for its format; make them smaller before")
            }
            (Some((layer, None)), Cause::Repeats) => write!(f, ": keep this layer in f32: f32={layer}"),
            (Some((layer, None)), Cause::NotFinite) => {
                write!(
                    f,
                    ": gs with forward=repeat gives activations exponents, or keep this layer in f32: f32={layer}"
                )
            }
        }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("skipped: ")?;
        match (&self.loss, &self.site) {
            (Some(loss), Some((site, kind))) => {
                write!(f, "{loss}; ")?;
                self.describe_site(f, site, *kind)?;
            }
            (Some(loss), None) => loss.fmt(f)?,
            (None, None) => f.write_str("a parameter gradient is not finite")?,
            (None, Some((site, kind))) => self.describe_site(f, site, *kind)?,
        }
        f.write_str(match self.cause {
            Cause::NotFinite => "",
            Cause::Outlier => ", far above all steps before (outliers)",
            Cause::Again => "; run the same batch again",
            Cause::Repeats => ", after three repeats",
        })
    }
}

/// Failed attempt at a step: a site overflowed, and the batch was repeated at exponents that fit it.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeated {
    /// Name of the first site where values were not finite.
    pub site: String,
    /// Kind of the failure at that site.
    pub kind: NonFiniteKind,
    /// Exponent of that site in the failed attempt.
    pub exponent: i32,
    /// Number of exponents by which `exponent` was too high for the batch; `None` if no exponent fits it.
    pub excess: Option<i32>,
}

impl fmt::Display for Repeated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("repeated: ")?;
        write_failure(f, &self.site, self.kind, self.exponent)?;
        self.excess.map_or(Ok(()), |excess| write!(f, ", by 2^{excess}"))?;
        let is_activation = self.site.ends_with("/forward") && self.kind == NonFiniteKind::Overflow;
        f.write_str(if is_activation { "; its activations have an exponent now" } else { "" })
    }
}

/// Writes which values were not finite, and at which exponent.
fn write_failure(f: &mut fmt::Formatter<'_>, site: &str, kind: NonFiniteKind, at: i32) -> fmt::Result {
    match kind {
        NonFiniteKind::Overflow => write!(f, "{site} overflowed at 2^{at}"),
        NonFiniteKind::Infinite => write!(f, "{site} received ±∞ at 2^{at}, although nothing before it overflowed"),
        NonFiniteKind::Nan => write!(f, "{site} received NaN at 2^{at}, which is not a scaling problem"),
    }
}

/// Outcome of a step, whether or not the parameters were updated.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOutcome {
    /// Loss before the update; the sum over the micro-batches if there are several.
    pub loss: f32,
    /// Reason for a skipped step; `None` if the parameters were updated.
    pub skipped: Option<Skipped>,
    /// Failed attempts before the last one; usually none, or one after a batch that did not fit.
    pub repeated: Vec<Repeated>,
    /// Norm of all gradients, if the step clips by it.
    pub gradient_norm: Option<f32>,
    /// With Adam, parameters whose largest gradient is below eps, so that their updates are smaller than the learning
    /// rate suggests.
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
            "skipped: the loss of this batch is infinite: nothing was learned from it, and no exponent changed"
        );
        let moved = ExponentsAfter::LossScale { before: 16, after: 15 };
        assert_eq!(
            skipped(f32::NAN, moved).with_sample(4321).to_string(),
            "skipped: the loss of this batch is NaN (sample 4321): nothing was learned from it, and the loss scale \
             changed from 2^16 to 2^15, although no scale can fix this loss"
        );
        let site = Some(("head/out".to_owned(), NonFiniteKind::Nan));
        let told = Skipped { site, ..skipped(f32::NEG_INFINITY, ExponentsAfter::Sites) }.to_string();
        assert!(
            told.ends_with(
                "exponents of some sites changed, although none can fix this loss; head/out received NaN at 2^0, which is not a scaling \
                 problem"
            ),
            "{told}"
        );
        // A skip of a batch whose loss is finite has no sample.
        let overflow = Skipped {
            site: Some(("a".to_owned(), NonFiniteKind::Overflow)),
            loss: None,
            ..skipped(0.0, ExponentsAfter::Kept)
        };
        assert_eq!(overflow.clone().with_sample(3), overflow);
        assert_eq!(skipped(f32::NAN, moved), skipped(f32::NAN, moved));
        assert_ne!(skipped(f32::NAN, moved), skipped(f32::INFINITY, moved));
        assert_eq!(overflow.to_string(), "skipped: a overflowed at 2^0");
        let of = |site: &str| {
            let site = Some((site.to_owned(), NonFiniteKind::Overflow));
            Skipped { site, ..overflow.clone() }.to_string()
        };
        assert_eq!(
            of("net.a/forward"),
            "skipped: net.a/forward overflowed at 2^0: gs with forward=repeat gives activations exponents, or keep this \
             layer in f32: f32=net.a"
        );
        assert_eq!(
            of("input0/cast/forward"),
            "skipped: input0/cast/forward overflowed at 2^0: input0 has values too large for its format; make them smaller before"
        );
        let site = Some(("net.a/forward".to_owned(), NonFiniteKind::Overflow));
        let after = |cause: Cause| Skipped { site: site.clone(), exponent: -9, cause, ..overflow.clone() }.to_string();
        assert_eq!(
            after(Cause::Repeats),
            "skipped: net.a/forward overflowed at 2^-9: keep this layer in f32: f32=net.a, after three repeats"
        );
        assert_eq!(after(Cause::Again), "skipped: net.a/forward overflowed at 2^-9; run the same batch again");
        let repeated = |site: &str, exponent: i32| {
            let kind = NonFiniteKind::Overflow;
            Repeated { site: site.to_owned(), kind, exponent, excess: Some(5) }.to_string()
        };
        assert_eq!(
            repeated("net.a/forward", 0),
            "repeated: net.a/forward overflowed at 2^0, by 2^5; its activations have an exponent now"
        );
        assert_eq!(repeated("net.a/dgrad", 12), "repeated: net.a/dgrad overflowed at 2^12, by 2^5");
    }
}
