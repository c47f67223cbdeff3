//! Generation: DCGAN, two networks that train in turn, one to make images and one to tell them from real ones.

mod data;
mod features;
mod frame;
mod frechet;
mod gallery;
mod network;
mod training;

use super::{
    CheckpointInfo, Dataset, DetectedNetwork, Export, GeneratedImages, ImageInput, InferenceModel, InputSpec,
    LossDivisor, Net, Network, Predictions, Task, TaskSpec, inference::WeightLoader, torch,
};
use crate::{
    Failure,
    build_feature::BuildFeature,
    data::{DataOptions, Meant},
    device::Work,
    optimizer::Rule,
};
use frame::{Frame, coloured};
use gallery::Gallery;
use gradscale::{
    Cpu, Input, Method, Parameters, PlanRow, Trainer,
    gradscale_core::backend::Backend,
    models::{Dcgan, GanSize, Generator},
    nn::Module,
    optim::Sgd,
};
use network::{LR, Noise, RULE, network, size};
use safetensors::SafeTensors;
use std::path::Path;

/// Task `generate`: training a network that generates images from noise.
pub(super) struct Generate;

impl TaskSpec for Generate {
    fn net(&self) -> Net {
        Net::Dcgan
    }

    fn batch(&self) -> usize {
        64
    }

    fn lr(&self, _: Net) -> f64 {
        LR
    }

    fn default_optimizer(&self) -> Option<(Rule, f64)> {
        Some((RULE, LR))
    }

    fn divisor(&self) -> LossDivisor {
        LossDivisor::Batch
    }

    fn loss_denominator(&self, batch: usize, _: usize) -> (&'static str, usize) {
        ("images", batch)
    }

    fn network(&self, network: Network) -> String {
        network.words("DCGAN")
    }

    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        BuildFeature::Generation.check()?;
        reading.refuse("images without classes", &[Meant::Ignore, Meant::Label])?;
        Ok(Box::new(Gallery::load(path, reading, seed)?))
    }

    /// Returns the plan of the generator's step, which includes both networks.
    fn layers(&self, of: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        let (parameters, net) = network(0, of, 3);
        let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
        let trainer = Trainer::new(device, parameters, Sgd::default(), method)?;
        let each = size(of).noise;
        let noise = vec![0.0; 2 * each];
        Ok(trainer.plan([Input::f32([2, 1, 1, each], &noise)], |[noise]| net.generator_loss(noise))?)
    }

    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure> {
        let input = trained.classes.input;
        let ImageInput { size: image, .. } =
            input.ok_or_else(|| Failure::at("checkpoint", "lacks the size of its images"))?;
        let (mut parameters, size) = (Parameters::seeded(0), size(trained.network));
        let generator = Generator::new(&mut parameters.at(Dcgan::NAMES[0]), image[2], size);
        fill(&mut parameters, &[])?;
        let frame = Frame::new(image, size.side())?;
        let CheckpointInfo { device, threads, method, .. } = trained;
        device.open(threads, Loading { parameters, generator, method, size, frame })
    }

    /// Recognises the generator of PyTorch's DCGAN example by the tensors in its file.
    fn recognise(&self, file: &SafeTensors<'_>) -> Option<DetectedNetwork> {
        let found = |place: usize, small: bool| {
            let [first, last] = torch::sizes(file, "main.0.weight", &format!("main.{place}.weight"));
            let (&[noise, inner, 4, 4], &[width, channels, 4, 4]) = (&first[..], &last[..]) else { return None };
            let network = Network { net: Net::Dcgan, width, small };
            let of = size(network);
            let fits =
                noise == of.noise && width > 0 && inner == width << (of.levels - 1) && [1, 3].contains(&channels);
            let input = InputSpec::Noise([of.side(), of.side(), channels]);
            fits.then_some(DetectedNetwork { task: Task::Generate, network, classes: 0, input, whole: false })
        };
        found(12, false).or_else(|| found(9, true))
    }
}

/// Loaded generator that is still to be placed on its device.
struct Loading {
    parameters: Parameters,
    generator: Generator,
    method: Method,
    size: GanSize,
    frame: Frame,
}

impl Work for Loading {
    type Output = Box<dyn InferenceModel>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn InferenceModel>, Failure> {
        let Self { parameters, generator, method, size, frame } = self;
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), method)?;
        Ok(Box::new(Making { trainer, generator, size, frame }))
    }
}

struct Making<B: Backend> {
    trainer: Trainer<B>,
    generator: Generator,
    size: GanSize,
    frame: Frame,
}

impl<B: Backend<Error: 'static>> InferenceModel for Making<B> {
    fn predict(&mut self, _: [usize; 3], _: &[u8]) -> Result<Predictions, Failure> {
        Err(Failure::at("images", "the network generates images and reads none; give no files"))
    }

    fn onnx(&mut self, asked: &Export) -> Result<Vec<u8>, Failure> {
        let (net, each) = (&self.generator, self.size.noise);
        let noise = vec![0.0; asked.batch * each];
        let z = Input::f32([asked.batch, 1, 1, each], &noise);
        Ok(self.trainer.onnx([z], asked.half, |[z]| net.forward(z))?)
    }

    /// Generates images from the noise of this seed, which is the same for every checkpoint.
    fn make(&mut self, images: usize, seed: u64) -> Result<Option<GeneratedImages>, Failure> {
        let noise = Noise::Shown.draw(seed, images, self.size.noise);
        let made = training::make(&mut self.trainer, &self.generator, &self.frame, &noise, self.size.noise)?;
        let [height, width, channels] = self.frame.image;
        Ok(Some(GeneratedImages { size: [height, width], pixels: coloured(&made, channels) }))
    }
}
