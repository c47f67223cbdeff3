//! State of a training, and its ways in and out: parameters, batches, outputs, checkpoints.

mod checkpoint;
mod custom_optimizer;
mod export;
mod inspect;
mod outputs;
mod parameters;
mod prefetch;

pub use inspect::Named;
pub use prefetch::{Inputs, Prefetched};

pub(super) use outputs::Left;
pub(super) use parameters::ParameterSet;
pub(super) use prefetch::{check, check_values};
