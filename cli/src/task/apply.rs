//! A trained network, to be applied.

use super::{Classes, Net, Task, classify, run::predict, segnet};
use crate::{
    Failure,
    data::Element,
    device::{Device, Work},
};
use gradscale::{Method, Parameters, Trainer, core::backend::Backend, nn::Module, optim::Optimizer};

/// A trained network.
pub trait Apply {
    /// The class of every pixel, or of the image, [h, w, channels]; of numbers the bytes.
    ///
    /// # Errors
    /// An image that the network cannot take, or the device's.
    fn predict(&mut self, size: [usize; 3], pixels: &[u8]) -> Result<Vec<u8>, Failure>;
}

/// The network of a checkpoint, on a device.
///
/// # Errors
/// Bytes that are no checkpoint of this network, a device that cannot be opened.
pub fn apply(
    (device, threads): (Device, usize), (task, net, width): (Task, Net, usize), classes: &Classes, method: Method,
    bytes: &[u8],
) -> Result<Box<dyn Apply>, Failure> {
    let count = classes.names.len();
    let element = if classes.columns.is_empty() { Element::Byte } else { Element::Number };
    match task {
        Task::Segnet => {
            let (parameters, net, _) = segnet::network(0, width, &vec![1.0; count]);
            device.open(threads, Loading { parameters, net, optimizer: segnet::optimizer(1.0), method, bytes, element })
        }
        Task::Classify => {
            let input =
                classes.input.ok_or_else(|| Failure::at("checkpoint", "does not say the size of its images"))?;
            let (parameters, net) = classify::network(0, net, input, width, count);
            device
                .open(threads, Loading { parameters, net, optimizer: classify::optimizer(1.0), method, bytes, element })
        }
    }
}

struct Loading<'a, M> {
    parameters: Parameters,
    net: M,
    optimizer: Optimizer,
    method: Method,
    bytes: &'a [u8],
    element: Element,
}

impl<M: Module + 'static> Work for Loading<'_, M> {
    type Output = Box<dyn Apply>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn Apply>, Failure> {
        let mut trainer = Trainer::new(device, self.parameters, self.optimizer, self.method)?;
        trainer.load(self.bytes)?;
        Ok(Box::new(Loaded { trainer, net: self.net, element: self.element }))
    }
}

struct Loaded<B: Backend, M> {
    trainer: Trainer<B>,
    net: M,
    element: Element,
}

impl<B: Backend<Error: 'static>, M: Module> Apply for Loaded<B, M> {
    fn predict(&mut self, [height, width, channels]: [usize; 3], pixels: &[u8]) -> Result<Vec<u8>, Failure> {
        predict(&mut self.trainer, &self.net, ([1, height, width, channels], self.element), pixels)
    }
}
