//! Inference with trained networks.

use super::{Choice, Classes, GeneratedImages, Network, Predictions, run, torch::Flattened};
use crate::{
    Failure,
    data::Element,
    device::{Device, Work},
};
use gradscale::{Input, Method, Parameters, Trainer, gradscale_core::backend::Backend, nn::Module, optim::Sgd};

/// Shapes and precision of an exported ONNX model.
#[derive(Clone, Copy, Debug)]
pub struct Export {
    /// Batch size of the exported network's inputs.
    pub batch: usize,
    /// Length of a sequence of the exported network, in tokens.
    pub length: usize,
    /// Rows, columns and channels of images, where these are known.
    pub image: Option<[usize; 3]>,
    /// True if weights are stored in FP16.
    pub half: bool,
}

/// Trait of a trained network on a device, for inference.
pub trait InferenceModel {
    /// Predicts the class of every pixel, the class of the image, or boxes. The input is `[h, w, channels]` in bytes,
    /// or the bytes of f32 values for rows and spectra.
    ///
    /// # Errors
    /// An image that the network cannot take, or the device's.
    fn predict(&mut self, size: [usize; 3], pixels: &[u8]) -> Result<Predictions, Failure>;

    /// Exports the network as an ONNX model.
    ///
    /// # Errors
    /// An operator that ONNX does not have, a size that is missing or does not fit.
    fn onnx(&mut self, asked: &Export) -> Result<Vec<u8>, Failure>;

    /// Generates images from the noise of a seed. Returns `None` for networks that do not generate.
    ///
    /// # Errors
    /// The device's.
    fn make(&mut self, _images: usize, _seed: u64) -> Result<Option<GeneratedImages>, Failure> {
        Ok(None)
    }

    /// Continues a text by `length` sampled tokens.
    ///
    /// # Errors
    /// A network for something else, a text that it cannot read, or the device's.
    fn go_on(&mut self, _prompt: &str, _length: usize, _choice: Choice) -> Result<String, Failure> {
        Err(Failure::at("prompt", "is for networks of --task language"))
    }
}

/// Normalization of image bytes: (byte / 255 − mean) / deviation for each channel. A single number applies to all
/// channels.
#[derive(Clone, Debug, PartialEq)]
pub struct InputNormalization {
    /// Mean of each input channel, which is subtracted from the input.
    pub mean: Vec<f32>,
    /// Standard deviation of each input channel, by which the input is divided.
    pub deviation: Vec<f32>,
}

impl InputNormalization {
    pub(super) fn normalize(&self, pixels: &[u8], channels: usize) -> Vec<f32> {
        let of = |all: &[f32], i: usize| all.get(i % channels.max(1)).or(all.first()).copied();
        let value = |(i, &byte): (usize, &u8)| {
            let (mean, deviation) = (of(&self.mean, i).unwrap_or(0.0), of(&self.deviation, i).unwrap_or(1.0));
            (f32::from(byte) / 255.0 - mean) / deviation
        };
        pixels.iter().enumerate().map(value).collect()
    }
}

/// Arguments for loading a trained network from a checkpoint.
#[derive(Clone, Debug)]
pub struct CheckpointInfo<'a> {
    /// Device on which the network runs.
    pub device: Device,
    /// Number of CPU threads; 0 for one per core.
    pub threads: usize,
    /// Network whose weights the checkpoint has.
    pub network: Network,
    /// Names of the classes that the network predicts.
    pub classes: &'a Classes,
    /// Method that determines the precision of the forward pass.
    pub method: Method,
    /// Normalization of images; `None` is that of `gradscale train`.
    pub normal: Option<InputNormalization>,
}

/// Function that loads weights. The second argument names layers that read a flattened image.
pub type WeightLoader<'a> = &'a dyn Fn(&mut Parameters, &[Flattened]) -> Result<(), Failure>;

/// Places a trained network on its device.
pub(super) fn loaded(
    trained: CheckpointInfo<'_>, parameters: Parameters, net: impl Module + 'static,
) -> Result<Box<dyn InferenceModel>, Failure> {
    let CheckpointInfo { device, threads, classes, method, normal, .. } = trained;
    let element = if classes.columns.is_empty() { Element::Byte } else { Element::Number };
    device.open(threads, Loading { parameters, net, method, normal, element })
}

struct Loading<M> {
    parameters: Parameters,
    net: M,
    method: Method,
    normal: Option<InputNormalization>,
    element: Element,
}

impl<M: Module + 'static> Work for Loading<M> {
    type Output = Box<dyn InferenceModel>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn InferenceModel>, Failure> {
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, self.parameters, Sgd::new(0.0), self.method)?;
        Ok(Box::new(Loaded { trainer, net: self.net, normal: self.normal, element: self.element }))
    }
}

struct Loaded<B: Backend, M> {
    trainer: Trainer<B>,
    net: M,
    normal: Option<InputNormalization>,
    element: Element,
}

impl<B: Backend<Error: 'static>, M: Module> InferenceModel for Loaded<B, M> {
    fn predict(&mut self, [height, width, channels]: [usize; 3], pixels: &[u8]) -> Result<Predictions, Failure> {
        let size = [1, height, width, channels];
        let Some(normal) = &self.normal else {
            return run::predict(&mut self.trainer, &self.net, (size, self.element), pixels).map(Predictions::Classes);
        };
        let values = normal.normalize(pixels, channels);
        run::best(&mut self.trainer, &self.net, Input::f32(size, &values)).map(Predictions::Classes)
    }

    fn onnx(&mut self, &Export { batch, image, half, .. }: &Export) -> Result<Vec<u8>, Failure> {
        let image = image.ok_or_else(|| {
            Failure::at(
                "--size",
                "is missing; the network takes images of any size, so \
            give one",
            )
        })?;
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
