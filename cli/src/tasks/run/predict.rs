//! Predictions for images as bytes or values.

use crate::{Failure, data::Element};
use gradscale::{Input, Trainer, Var, gradscale_core::backend::Backend, nn::Module};

/// Predicts the most likely class of every pixel, or image; images are [n, h, w, channels].
pub fn predict<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, net: &impl Module, read: ([usize; 4], Element), images: &[u8],
) -> Result<Vec<u32>, Failure> {
    let values = values_of(read.1, images);
    best(trainer, net, input(read, images, &values))
}

/// Returns a network's logits for every image.
pub fn logits<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, net: &impl Module, read: ([usize; 4], Element), images: &[u8],
) -> Result<Vec<f32>, Failure> {
    let values = values_of(read.1, images);
    let answer = trainer.evaluate([input(read, images, &values)], |[x]: [Var<'_>; 1]| -> Var<'_> { net.forward(x) })?;
    Ok(answer.data)
}

/// Returns the numbers of images that are stored as such; empty for bytes.
pub fn values_of(element: Element, images: &[u8]) -> Vec<f32> {
    match element {
        Element::Byte => Vec::new(),
        Element::Number => numbers(images),
    }
}

/// Returns images as an input of a network. `values` are their numbers, if they are stored as such.
pub fn input<'a>((size, element): ([usize; 4], Element), images: &'a [u8], values: &'a [f32]) -> Input<'a> {
    match element {
        Element::Byte => Input::u8(size, images),
        Element::Number => Input::f32(size, values),
    }
}

/// Returns the likeliest class of each row of a batch of any type.
pub fn best<B: Backend<Error: 'static>>(
    trainer: &mut Trainer<B>, net: &impl Module, images: Input<'_>,
) -> Result<Vec<u32>, Failure> {
    let best = trainer.evaluate_integers([images], |[x]: [Var<'_>; 1]| -> Var<'_> { net.forward(x).argmax() })?;
    Ok(best.data)
}

/// Computes the loss of a batch in evaluation mode.
pub fn loss_of<B: Backend<Error: 'static>, const N: usize>(
    trainer: &mut Trainer<B>, batch: [Input<'_>; N], loss: impl for<'t> FnOnce([Var<'t>; N]) -> Var<'t>,
) -> Result<f32, Failure> {
    Ok(trainer.evaluate(batch, loss)?.data.first().copied().unwrap_or(f32::NAN))
}

/// Decodes little-endian f32 values from bytes.
pub fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
