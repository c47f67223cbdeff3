//! Classification of images and of rows of numbers: a perceptron, residual networks, AlexNet, VGG, Inception, two towers.

mod data;
mod network;
mod torchvision;
mod towers;
pub(super) mod training;

pub use network::Classifier;
pub(super) use network::network;

use super::{
    CheckpointInfo, ClassifyNet, Dataset, DetectedNetwork, ImageInput, InferenceModel, InputSpec, LossDivisor, Net,
    Network, Task, TaskSpec,
    inference::{WeightLoader, loaded},
    layers, torch,
};
use crate::{
    Failure,
    data::{DataOptions, Labelled},
};
use gradscale::{CrossEntropy, Method, PlanRow, models::Architecture};
use network::lr;
use safetensors::SafeTensors;
use std::path::Path;

/// Number of images that a report shows.
const REPORT_SAMPLES: usize = 12;
/// Number of units of a perceptron's layer for each channel of `--width`.
const UNITS: usize = 8;

/// Task `classify`: images with one class each.
pub(super) struct Classify;

impl TaskSpec for Classify {
    fn net(&self) -> Net {
        Net::Resnet
    }

    fn batch(&self) -> usize {
        64
    }

    fn lr(&self, net: Net) -> f64 {
        lr(net)
    }

    fn divisor(&self) -> LossDivisor {
        LossDivisor::Batch
    }

    fn loss_denominator(&self, batch: usize, _: usize) -> (&'static str, usize) {
        ("images", batch)
    }

    fn network(&self, network: Network) -> String {
        match network.net.classifier() {
            Some(ClassifyNet::Resnet) => network.words("ResNet-8"),
            Some(ClassifyNet::Mlp) => format!("A perceptron (two layers of {} units)", UNITS * network.width),
            Some(ClassifyNet::Towers) => "Two towers, losses 2⁴⁶ apart,".to_owned(),
            Some(ClassifyNet::Vision(architecture)) => network.words(match architecture {
                Architecture::AlexNet => "AlexNet",
                Architecture::Vgg16 => "VGG-16",
                Architecture::GoogLeNet => "GoogLeNet",
                Architecture::InceptionV2 => "Inception v2",
                Architecture::InceptionV3 => "Inception v3",
                Architecture::ResNet18 => "ResNet-18",
                Architecture::ResNet50 => "ResNet-50",
            }),
            None => network.words(&network.net.to_string()),
        }
    }

    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        let mut data = match path {
            Some(path) => Labelled::load(path, reading)?,
            None if reading.bad_image => Labelled::with_bad_image(seed),
            None => Labelled::synthetic(seed).cropped(reading),
        };
        data.validation = data.validation.filter(|_| reading.validation);
        Ok(Box::new(data))
    }

    fn layers(&self, of: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        // Some of the papers' networks do not fit smaller images.
        let image = of.net.architecture().filter(|_| !of.small).map(Architecture::image);
        let side = image.unwrap_or(layers::SIDE);
        let input = ImageInput::new([side, side, 3], [0.0, 1.0]);
        let (parameters, classifier) = network(0, of, input, 10)?;
        layers::describe_layers(parameters, method, side, &[0], |x, labels| {
            classifier.loss(x, labels, &CrossEntropy::default())
        })
    }

    fn takes_size(&self, network: Network, image: [usize; 3]) -> Result<bool, Failure> {
        match network.net.classifier() {
            // Their first layer is a matrix product.
            Some(ClassifyNet::Mlp | ClassifyNet::Towers) | None => Ok(true),
            Some(ClassifyNet::Resnet | ClassifyNet::Vision(_)) => {
                let (parameters, classifier) = self::network(0, network, ImageInput::new(image, [0.0, 1.0]), 2)?;
                layers::takes_size(parameters, image, &[0], |x, labels| {
                    classifier.loss(x, labels, &CrossEntropy::default())
                })
            }
        }
    }

    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure> {
        let input = trained.classes.input;
        let input = input.ok_or_else(|| Failure::at("checkpoint", "lacks the size of its images"))?;
        let (mut parameters, net) = network(0, trained.network, input, trained.classes.names.len())?;
        fill(&mut parameters, &net.flattened())?;
        loaded(trained, parameters, net)
    }

    fn recognise(&self, file: &SafeTensors<'_>) -> Option<DetectedNetwork> {
        let found =
            |network, classes, input| DetectedNetwork { task: Task::Classify, network, classes, input, whole: true };
        let [first, last] = torch::sizes(file, "conv.weight", "linear.weight");
        if let (&[width, channels, _, _], &[classes, _]) = (&first[..], &last[..]) {
            return Some(found(Network::small(Net::Resnet, width), classes, InputSpec::Channels(channels)));
        }
        let [first, last] = torch::sizes(file, "linear1.weight", "linear3.weight");
        if let (&[units, values], &[classes, _]) = (&first[..], &last[..]) {
            return Some(found(Network::small(Net::Mlp, units / UNITS), classes, InputSpec::Values(values)));
        }
        torchvision::recognise(file)
    }
}
