//! A trained network, to be applied.

use super::{Answers, Choice, Classes, Made, Network, run, torch::Flattened};
use crate::{
    Failure,
    data::Element,
    device::{Device, Work},
};
use gradscale::{Input, Method, Parameters, Trainer, core::backend::Backend, nn::Module, optim::Sgd};

/// A model for other runtimes, as it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    /// Images, rows or sequences at a time.
    pub batch: usize,
    /// Places of a sequence.
    pub length: usize,
    /// Rows, columns and channels of images, where these are known.
    pub image: Option<[usize; 3]>,
    /// Whether weights are stored in FP16.
    pub half: bool,
}

/// A trained network.
pub trait Apply {
    /// The class of every pixel, or of the image, [h, w, channels], or boxes in it; of numbers, and of spectra, the bytes.
    ///
    /// # Errors
    /// An image that the network cannot take, or the device's.
    fn predict(&mut self, size: [usize; 3], pixels: &[u8]) -> Result<Answers, Failure>;

    /// The network as an ONNX model.
    ///
    /// # Errors
    /// An operator that ONNX does not have, a size that is missing or does not fit.
    fn onnx(&mut self, asked: &Export) -> Result<Vec<u8>, Failure>;

    /// So many images of the noise of a seed, by a network that makes images; other networks make none.
    ///
    /// # Errors
    /// The device's.
    fn make(&mut self, _images: usize, _seed: u64) -> Result<Option<Made>, Failure> {
        Ok(None)
    }

    /// A text with so many tokens behind it.
    ///
    /// # Errors
    /// A network for something else, a text that it cannot read, or the device's.
    fn go_on(&mut self, _prompt: &str, _length: usize, _choice: Choice) -> Result<String, Failure> {
        Err(Failure::at("prompt", "the network reads no text"))
    }
}

/// What becomes of an image's bytes before the network reads them: (byte / 255 − mean) / deviation, of each channel;
/// one number stands for all channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Normal {
    /// Means.
    pub mean: Vec<f32>,
    /// Standard deviations.
    pub deviation: Vec<f32>,
}

impl Normal {
    pub(super) fn normalize(&self, pixels: &[u8], channels: usize) -> Vec<f32> {
        let of = |all: &[f32], i: usize| all.get(i % channels.max(1)).or(all.first()).copied();
        let value = |(i, &byte): (usize, &u8)| {
            let (mean, deviation) = (of(&self.mean, i).unwrap_or(0.0), of(&self.deviation, i).unwrap_or(1.0));
            (f32::from(byte) / 255.0 - mean) / deviation
        };
        pixels.iter().enumerate().map(value).collect()
    }
}

/// A trained network, before it is on a device.
#[derive(Clone, Debug)]
pub struct Trained<'a> {
    /// Where it is to run.
    pub device: Device,
    /// Threads of the CPU.
    pub threads: usize,
    /// The network.
    pub network: Network,
    /// What it tells apart.
    pub classes: &'a Classes,
    /// Precision.
    pub method: Method,
    /// What becomes of images first; without, as `gradscale train` feeds them.
    pub normal: Option<Normal>,
}

/// Puts weights into a network, some of whose layers read a flattened image.
pub type Fill<'a> = &'a dyn Fn(&mut Parameters, &[Flattened]) -> Result<(), Failure>;

/// On its device.
pub(super) fn loaded(
    trained: Trained<'_>, parameters: Parameters, net: impl Module + 'static,
) -> Result<Box<dyn Apply>, Failure> {
    let Trained { device, threads, classes, method, normal, .. } = trained;
    let element = if classes.columns.is_empty() { Element::Byte } else { Element::Number };
    device.open(threads, Loading { parameters, net, method, normal, element })
}

struct Loading<M> {
    parameters: Parameters,
    net: M,
    method: Method,
    normal: Option<Normal>,
    element: Element,
}

impl<M: Module + 'static> Work for Loading<M> {
    type Output = Box<dyn Apply>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn Apply>, Failure> {
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, self.parameters, Sgd::new(0.0), self.method)?;
        Ok(Box::new(Loaded { trainer, net: self.net, normal: self.normal, element: self.element }))
    }
}

struct Loaded<B: Backend, M> {
    trainer: Trainer<B>,
    net: M,
    normal: Option<Normal>,
    element: Element,
}

impl<B: Backend<Error: 'static>, M: Module> Apply for Loaded<B, M> {
    fn predict(&mut self, [height, width, channels]: [usize; 3], pixels: &[u8]) -> Result<Answers, Failure> {
        let size = [1, height, width, channels];
        let Some(normal) = &self.normal else {
            return run::predict(&mut self.trainer, &self.net, (size, self.element), pixels).map(Answers::Classes);
        };
        let values = normal.normalize(pixels, channels);
        run::best(&mut self.trainer, &self.net, Input::f32(size, &values)).map(Answers::Classes)
    }

    fn onnx(&mut self, &Export { batch, image, half, .. }: &Export) -> Result<Vec<u8>, Failure> {
        let image = image.ok_or_else(|| Failure::at("--size", "is missing: the network takes images of any size"))?;
        let [height, width, channels] = image;
        let (size, net) = ([batch, height, width, channels], &self.net);
        let (bytes, numbers);
        let input = match self.element {
            Element::Byte => {
                bytes = vec![0; size.iter().product()];
                Input::u8(size, &bytes)
            }
            Element::Number => {
                numbers = vec![0.0; size.iter().product()];
                Input::f32(size, &numbers)
            }
        };
        Ok(self.trainer.onnx([input], half, |[x]| net.forward(x))?)
    }
}
