//! Outcome of a training step.

use gradscale::{
    Cause,
    gradscale_core::step_outcome::{FirstNonFinite, NonFiniteKind},
    sites::Finished,
};
use pyo3::prelude::*;

/// Outcome of a step, or of one attempt at it.
#[pyclass(frozen, get_all, module = "gradscale")]
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Kind of the outcome: "stepped", "repeat" or "skipped".
    kind: &'static str,
    /// Index of the first site where values were not finite.
    site: Option<usize>,
    /// Name of that site.
    site_name: Option<String>,
    /// Kind of the values at the site: "overflow", "infinite" or "nan".
    non_finite: Option<&'static str>,
    /// Exponent that the site had in the failed attempt.
    exponent: Option<i32>,
    /// Reason why a step was skipped: "not_finite", "outlier", "again" or "repeats".
    cause: Option<&'static str>,
}

impl Outcome {
    /// Converts the end of an attempt. `at` returns index and name of the site that failed.
    pub fn from_finished(finished: Finished, at: impl FnOnce(FirstNonFinite) -> (usize, String)) -> Self {
        let (kind, blame, cause) = match finished {
            Finished::Stepped => ("stepped", None, None),
            Finished::Repeat(blame) => ("repeat", Some(blame), None),
            Finished::Skipped(blame, cause) => ("skipped", blame, Some(cause)),
        };
        let (site, site_name) = blame.map(at).unzip();
        let non_finite = blame.map(|blame| match blame.kind {
            NonFiniteKind::Overflow => "overflow",
            NonFiniteKind::Infinite => "infinite",
            NonFiniteKind::Nan => "nan",
        });
        let cause = cause.map(Cause::name);
        Self { kind, site, site_name, non_finite, exponent: blame.map(|blame| blame.exponent), cause }
    }
}

#[pymethods]
impl Outcome {
    /// Returns true if parameters are to be updated.
    #[getter]
    fn stepped(&self) -> bool {
        self.kind == "stepped"
    }

    fn __bool__(&self) -> bool {
        self.stepped()
    }

    fn __str__(&self) -> String {
        let Some((name, exponent)) = self.site_name.as_ref().zip(self.exponent) else {
            return match self.kind {
                "skipped" => "skipped: a parameter gradient is not finite".to_owned(),
                kind => kind.to_owned(),
            };
        };
        let what = match self.non_finite {
            Some("infinite") => "received ±∞, although nothing before it overflowed",
            Some("nan") => "received NaN, which is not a scaling problem",
            Some(_) | None => "overflowed",
        };
        format!("{}: {name} {what} at 2^{exponent}", self.kind)
    }

    fn __repr__(&self) -> String {
        format!("<Outcome {self}>", self = self.__str__())
    }
}
