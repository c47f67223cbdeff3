//! Interface of all trainings in the regimes.

use gradscale::{Cpu, CpuError, Error, Gradients, Parameters, Trainer, optim::Optimizer};

/// Error of the engine on the CPU.
pub type Failed = Error<CpuError>;

/// Network under training in a regime.
pub trait Learn {
    /// Forward and backward pass of the batch of a step.
    fn backward(&mut self, trainer: &mut Trainer<Cpu>, step: u64, conditions: &Conditions)
    -> Result<Gradients, Failed>;

    /// Returns the score on the test set.
    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed>;

    /// Returns true if the last batch has finite gradients in f32.
    fn is_finite(&self, _: &Conditions) -> bool {
        true
    }
}

/// A network before its first step.
pub struct Begun<'a> {
    pub learner: Box<dyn Learn + 'a>,
    pub parameters: Parameters,
    pub optimizer: Optimizer,
}

/// Conditions that a regime imposes on a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Factor of the loss.
    pub factor: f32,
    /// Factor of the inputs.
    pub contrast: f32,
    /// Replacement of one target.
    pub target: Option<f32>,
    /// Replacement of one input value.
    pub input: Option<f32>,
}

impl Conditions {
    /// Conditions of an ordinary batch.
    pub const ORDINARY: Self = Self { factor: 1.0, contrast: 1.0, target: None, input: None };

    /// Returns true if f32 gradients of the batch are finite.
    pub fn finite(&self) -> bool {
        self.input.is_none_or(f32::is_finite)
    }
}
