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
    /// Ids of the weights that have gradients, in the order of the backward pass.
    pub(in crate::train) contributes: Vec<usize>,
    /// Running statistics that are updated in this step, each with its number of calls.
    pub(in crate::train) statistics: Vec<(usize, u32)>,
    /// Name of the loss, if there are several; otherwise empty.
    pub(in crate::train) loss: String,
    /// Slots of the statistics rows, in the order of their stores.
    pub(in crate::train) order: Vec<Slot>,
    pub(in crate::train) clip: Option<f32>,
}

impl Gradients {
    /// Clips the norm of all gradients in the coming step to `most`, instead of the optimizer's own limit.
    ///
    /// `most` must be positive, else the step ends with an error.
    pub fn clip_norm(self, most: f32) -> Self {
        Self { clip: Some(most), ..self }
    }

    /// Returns the number of micro-batches whose gradients are summed here.
    #[must_use]
    pub const fn micro_batches(&self) -> u32 {
        self.micro
    }
}
