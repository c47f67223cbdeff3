//! State of a training, and access to it: parameters, batches, outputs and checkpoints.

mod average;
mod checkpoint;
mod checkpoint_file;
mod custom_optimizer;
#[cfg(feature = "onnx")]
mod export;
mod inspect;
mod outputs;
mod parameters;
mod prefetch;

pub use average::EvaluationWeights;
pub use checkpoint_file::CheckpointFile;
pub use inspect::{Named, forward_sites, unused_restored_sites};
pub use prefetch::{Inputs, Prefetched};

pub(super) use outputs::DeviceOutput;
pub(super) use parameters::ParameterSet;
pub(super) use prefetch::{check, check_values};
