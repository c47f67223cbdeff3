//! Layers.

mod attention;
mod conv;
mod conv1d;
mod conv_transpose;
mod cross_attention;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod recurrent;
mod rotary;
mod sampled_softmax;
mod sequence;

pub(crate) use attention::DecodeStep;
pub use attention::SelfAttention;
pub use conv::Conv2d;
pub use conv_transpose::ConvTranspose2d;
pub use conv1d::Conv1d;
pub use cross_attention::CrossAttention;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::Linear;
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, LocalResponseNorm, RmsNorm};
pub use recurrent::{GruCell, LstmCell};
pub use rotary::{Rotary, Turn};
pub use sampled_softmax::{Candidate, SampledSoftmax};
pub use sequence::{Gru, Lstm};

use crate::Var;
use gradscale_core::ops::ShapeError;

/// Trait of a part of a network with one input and one output. The trainer owns its parameters; the module keeps their
/// handles.
pub trait Module {
    /// Records the module's operators on the tape of `x`, and returns its output.
    ///
    /// # Errors
    /// An input that does not fit.
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t>;
}

/// Impl for a sequence of modules, which are applied one after the other.
impl<M: Module> Module for Vec<M> {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.iter().fold(x, |x, module| module.forward(x))
    }
}

/// Converts sizes to u32, as descriptors have them.
fn sizes<const N: usize>(sizes: [usize; N]) -> Result<[u32; N], ShapeError> {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(sizes) {
        *to = u32::try_from(from).map_err(|_| ShapeError::TooLarge)?;
    }
    Ok(all)
}
