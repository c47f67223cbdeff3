//! Layers.

mod attention;
mod conv;
mod conv_transpose;
mod dropout;
mod embedding;
mod linear;
mod norm;
mod recurrent;
mod rotary;
mod sampled_softmax;
mod sequence;

pub use attention::SelfAttention;
pub(crate) use attention::Step;
pub use conv::Conv2d;
pub use conv_transpose::ConvTranspose2d;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use linear::Linear;
pub use norm::{BatchNorm, GroupNorm, LayerNorm, LocalResponseNorm, RmsNorm};
pub use recurrent::{GruCell, LstmCell};
pub use rotary::{Rotary, Turn};
pub use sampled_softmax::{Candidate, SampledSoftmax};
pub use sequence::{Gru, Lstm};

use crate::Var;
use gradscale_core::ops::ShapeError;

/// A part of a network: one value in, one out. Its parameters live in the trainer; it keeps their handles.
pub trait Module {
    /// Writes what the module does on the tape of `x`.
    ///
    /// # Errors
    /// An input that does not fit.
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t>;
}

/// Modules one after the other.
impl<M: Module> Module for Vec<M> {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.iter().fold(x, |x, module| module.forward(x))
    }
}

/// Sizes as descriptors take them.
fn sizes<const N: usize>(sizes: [usize; N]) -> Result<[u32; N], ShapeError> {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(sizes) {
        *to = u32::try_from(from).map_err(|_| ShapeError::TooLarge)?;
    }
    Ok(all)
}
