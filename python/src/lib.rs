//! The module `gradscale._gradscale`: casts, statistics, sites, rules and schedules of gradient scaling for Python.
//!
//! Nothing is decided or computed here: every function hands arrays and numbers to `gradscale-core`, to the engine's sites
//! and to the CPU backend, and what they answer back to Python. The package `gradscale` around it has types and
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

/// A `ValueError` that says what an error says.
fn wrong(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymodule]
mod _gradscale {
    #[pymodule_export]
    use crate::{
        cast::{cast_into, decode_into, width},
        device::set_num_threads,
        outcome::Outcome,
        rules::{Choice, NoDecision, Rule, conv_terms},
        schedule::{LossScale, propose_fixed},
        sites::Sites,
        stats::Stats,
        store::{store, store_site},
        traces::play,
    };
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    const METHODS: &str = gradscale::METHODS;
    #[pymodule_export]
    const ROW_WORDS: usize = crate::words::ROW_WORDS;
}
