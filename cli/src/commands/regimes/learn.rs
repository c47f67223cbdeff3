//! What all trainings of the benchmark have in common, step by step.

use gradscale::{Cpu, CpuError, Error, Gradients, Parameters, Trainer, optim::Optimizer};

/// Error of the engine on the CPU.
pub type Failed = Error<CpuError>;

/// What is trained, step by step.
pub trait Learn {
    /// Forward and backward pass of the batch of a step.
    fn backward(&mut self, trainer: &mut Trainer<Cpu>, step: u64, conditions: &Conditions)
    -> Result<Gradients, Failed>;

    /// Score on what was not trained on.
    fn score(&mut self, trainer: &mut Trainer<Cpu>) -> Result<f64, Failed>;

    /// Whether f32 can train on the last batch.
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

/// What a batch meets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// Its loss is multiplied by this.
    pub factor: f32,
    /// What it is read as is, before the first unit.
    pub contrast: f32,
    /// One of its targets is this.
    pub target: Option<f32>,
    /// One of its inputs is this.
    pub input: Option<f32>,
}

impl Conditions {
    /// Nothing unusual.
    pub const ORDINARY: Self = Self { factor: 1.0, contrast: 1.0, target: None, input: None };

    /// Whether f32 can train on it.
    pub fn finite(&self) -> bool {
        self.input.is_none_or(f32::is_finite)
    }
}
