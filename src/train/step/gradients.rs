//! Gradients of a step, from its backward passes to its update.

use gradscale_core::backend::Slot;

/// Gradients of all parameters that the last loss depends on: f32, unscaled, on the device. [`Trainer::step`](crate::Trainer::step)
/// uses them up.
#[derive(Debug)]
#[must_use = "gradients do nothing until Trainer::step takes them"]
pub struct Gradients {
    pub(in crate::train) trainer: u64,
    pub(in crate::train) serial: u64,
    pub(in crate::train) program: usize,
    pub(in crate::train) micro: u32,
    /// Weights that got one.
    pub(in crate::train) contributes: Vec<usize>,
    /// Running statistics that got new ones, and from how many calls.
    pub(in crate::train) statistics: Vec<(usize, u32)>,
    /// Name of the loss.
    pub(in crate::train) loss: String,
    /// Rows in the order of their stores.
    pub(in crate::train) order: Vec<Slot>,
    pub(in crate::train) clip: Option<f32>,
}

impl Gradients {
    /// Scales all down together to this norm in the coming step, where they exceed it; instead of the optimizer's own
    /// limit.
    ///
    /// `most` must be positive, else the step ends with an error.
    pub fn clip_norm(self, most: f32) -> Self {
        Self { clip: Some(most), ..self }
    }

    /// Micro-batches that have added up here.
    #[must_use]
    pub const fn micro_batches(&self) -> u32 {
        self.micro
    }
}
