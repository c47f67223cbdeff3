//! Trait of image classification networks.

use crate::{Var, nn::Module};
use std::fmt::Debug;

/// Trait of image classification networks from `[n, h, w, inputs]` to `[n, classes]`. If torchvision has it, its layers
/// have the same names, so that [`crate::Parameters::import_torch`] finds its weights by name.
pub trait Vision: Module + Debug + Send + Sync {
    /// Returns the logits in training, each with the weight of its loss: first the network's own, then those of
    /// auxiliary heads.
    fn heads<'t>(&self, x: Var<'t>) -> Vec<(Var<'t>, f32)> {
        vec![(self.forward(x), 1.0)]
    }

    /// Returns the linear layers that read a flattened image, with its rows, columns and channels: see
    /// [`crate::TorchModule::flattened`].
    fn flattened(&self) -> Vec<(&'static str, [usize; 3])> {
        Vec::new()
    }
}
