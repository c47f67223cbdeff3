//! Classification of small images: a multilayer perceptron, a small residual network, or two towers.

mod data;
mod network;
mod towers;
mod training;

pub use network::{Classifier, Net};

use super::{
    Apply, Dataset, ImageInput, Kind, Pixels, Reads, Recognised, Task, Trained,
    apply::{Fill, loaded},
    layers, torch,
};
use crate::{
    Failure,
    data::{Labelled, Reading},
};
use gradscale::{CrossEntropy, Method, PlanRow};
use network::network;
use safetensors::SafeTensors;
use std::path::Path;

/// Images that a report shows.
const SHOWN: usize = 12;
/// Units of a perceptron's layer for each channel of its width.
const UNITS: usize = 8;

/// The task.
pub(super) struct Classify;

impl Kind for Classify {
    fn batch(&self) -> usize {
        64
    }

    fn lr(&self, net: Net) -> f64 {
        net.lr()
    }

    fn divisor(&self) -> Pixels {
        Pixels::Batch
    }

    fn counted(&self, batch: usize, _: usize) -> (&'static str, usize) {
        ("images", batch)
    }

    fn network(&self, net: Net, width: usize) -> String {
        match net {
            Net::Resnet => format!("ResNet-8 ({width} channels)"),
            Net::Mlp => format!("A perceptron (two layers of {} units)", UNITS * width),
            Net::Towers => "Two towers, losses 2⁴⁶ apart,".to_owned(),
        }
    }

    fn load(&self, path: Option<&Path>, reading: &Reading, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        let mut data = match path {
            Some(path) => Labelled::load(path, reading)?,
            None => Labelled::synthetic(seed),
        };
        data.validation = data.validation.filter(|_| reading.validation);
        Ok(Box::new(data))
    }

    fn layers(&self, net: Net, width: usize, method: Method) -> Result<Vec<PlanRow>, Failure> {
        let input = ImageInput { size: layers::SIZE, mean: 0.0, deviation: 1.0 };
        let (parameters, classifier) = network(0, net, input, width, 10);
        layers::of(parameters, method, &[0], |x, labels| classifier.loss(x, labels, &CrossEntropy::default()))
    }

    fn apply(&self, trained: Trained<'_>, fill: Fill<'_>) -> Result<Box<dyn Apply>, Failure> {
        let input = trained.classes.input;
        let input = input.ok_or_else(|| Failure::at("checkpoint", "does not say the size of its images"))?;
        let (mut parameters, net) = network(0, trained.net, input, trained.width, trained.classes.names.len());
        fill(&mut parameters)?;
        loaded(trained, parameters, net)
    }

    fn recognise(&self, file: &SafeTensors<'_>) -> Option<Recognised> {
        let found =
            |net, width, classes, input| Recognised { task: Task::Classify, net, width, classes, input, whole: true };
        let [first, last] = torch::sizes(file, "conv.weight", "linear.weight");
        if let (&[width, channels, _, _], &[classes, _]) = (&first[..], &last[..]) {
            return Some(found(Net::Resnet, width, classes, Reads::Channels(channels)));
        }
        let [first, last] = torch::sizes(file, "linear1.weight", "linear3.weight");
        if let (&[units, values], &[classes, _]) = (&first[..], &last[..]) {
            return Some(found(Net::Mlp, units / UNITS, classes, Reads::Values(values)));
        }
        None
    }
}
