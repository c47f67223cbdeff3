//! The module `gradscale._gradscale`: casts, statistics, sites, rules and schedules of gradient scaling for Python.
//!
//! Nothing is decided or computed here: every function passes arrays and numbers to `gradscale-core`, the engine's
//! sites or the CPU backend, and returns their results. The package `gradscale` around this module adds types and
//! docstrings.

mod cast;
mod device;
mod outcome;
mod rules;
mod schedule;
mod sites;
mod stats;
mod store;
mod traces;
mod words;

use pyo3::{exceptions::PyValueError, prelude::*};
use std::fmt::Display;

/// Creates a `ValueError` with the message of an error.
fn wrong(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Returns the text of a method. If its interval is a fraction of the training, `steps` determines the number of steps.
fn method_for(method: &str, steps: Option<u64>) -> PyResult<String> {
    let Some(steps) = steps else { return Ok(method.to_owned()) };
    let read = gradscale::Method::for_steps(method, steps).map_err(wrong)?;
    // A text that does not depend on the number of steps is returned unchanged.
    Ok(if method.parse::<gradscale::Method>().is_ok() { method.to_owned() } else { read.to_string() })
}

/// Returns name, method and description of the loss scales that are named after other libraries.
#[pyfunction]
fn baselines() -> Vec<(&'static str, &'static str, &'static str)> {
    gradscale::BASELINES.iter().map(|baseline| (baseline.name, baseline.method, baseline.about)).collect()
}

#[pymodule]
mod _gradscale {
    #[pymodule_export]
    use crate::{
        baselines,
        cast::{cast_into, decode_into, width},
        device::set_num_threads,
        outcome::Outcome,
        rules::{Decision, NoDecisionError, Rule, conv_terms},
        schedule::{LossScale, propose_fixed},
        sites::Sites,
        stats::{Stats, store_formats},
        store::{store, store_site},
        traces::play,
    };
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    const METHOD_SYNTAX: &str = gradscale::METHODS;
    #[pymodule_export]
    const ROW_WORDS: usize = crate::words::ROW_WORDS;
}
