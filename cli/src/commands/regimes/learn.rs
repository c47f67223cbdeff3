//! Interface of all trainings in the regimes.

use gradscale::{Cpu, CpuError, Error, Gradients, Parameters, Trainer, optim::Optimizer};

/// Error of a training on the CPU.
pub type Failed = Error<CpuError>;

/// Trait of a network that is trained in a regime.
pub trait Learn {
    /// Runs the forward and backward pass of a step's batch.
    fn backward(&mut self, trainer: &mut Trainer<Cpu>, step: u64, conditions: &Conditions)
    -> Result<Gradients, Failed>;

    /// Returns the network's score on the test set of the regime.
    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed>;

    /// Returns true if the last batch has finite gradients in f32.
    fn is_finite(&self, _: &Conditions) -> bool {
        true
    }
}

/// Network of a regime before its first step, with parameters and optimizer.
pub struct Begun<'a> {
    pub learner: Box<dyn Learn + 'a>,
    pub parameters: Parameters,
    pub optimizer: Optimizer,
}

/// Conditions that a regime imposes on a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Factor that multiplies the loss of the batch.
    pub factor: f32,
    /// Factor that multiplies the inputs of the batch.
    pub contrast: f32,
    /// Value that replaces one target of the batch.
    pub target: Option<f32>,
    /// Value that replaces one input value of the batch.
    pub input: Option<f32>,
}

impl Conditions {
    /// Conditions of an ordinary batch, which change nothing.
    pub const ORDINARY: Self = Self { factor: 1.0, contrast: 1.0, target: None, input: None };

    /// Returns true if f32 gradients of the batch are finite.
    pub fn finite(&self) -> bool {
        self.input.is_none_or(f32::is_finite)
    }
}
