//! SegNetBasic on segmentation data, as in the paper's section 5.4, and SegNet in full.

mod data;
mod network;
pub(super) mod training;

use super::{
    CheckpointInfo, Dataset, DetectedNetwork, InferenceModel, InputSpec, LossDivisor, Net, Network, Task, TaskSpec,
    inference::{WeightLoader, loaded},
    layers, torch,
};
use crate::{
    Failure,
    data::{DataOptions, Segmentation},
};
use gradscale::{Method, PlanRow, nn::Module};
use network::network;
use safetensors::SafeTensors;
use std::path::Path;

/// Number of images that a report shows.
const REPORT_SAMPLES: usize = 4;

/// Task `segnet`: the class of each pixel of an image.
pub(super) struct Segnet;

impl TaskSpec for Segnet {
    fn net(&self) -> Net {
        Net::SegnetBasic
    }

    fn batch(&self) -> usize {
        8
    }

    /// Returns the learning rate of the paper.
    fn lr(&self, _: Net) -> f64 {
        0.1
    }

    fn divisor(&self) -> LossDivisor {
        LossDivisor::Fixed(LossDivisor::PAPER)
    }

    fn loss_denominator(&self, batch: usize, image: usize) -> (&'static str, usize) {
        ("pixels", batch * image)
    }

    fn network(&self, network: Network) -> String {
        network.words(if network.net == Net::Segnet { "SegNet" } else { "SegNetBasic" })
    }

    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        let mut data = match path {
            Some(path) => Segmentation::load(path, reading)?,
            None => Segmentation::synthetic(seed),
        };
        data.validation = data.validation.filter(|_| reading.validation);
        Ok(Box::new(data))
    }

    fn layers(&self, of: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        let (parameters, net, _) = network(0, of, true, &[1.0; 11]);
        let labels = [0; layers::SIDE * layers::SIDE];
        layers::describe_layers(parameters, method, layers::SIDE, &labels, |x, labels| {
            net.forward(x).cross_entropy(labels)
        })
    }

    fn takes_size(&self, network: Network, image: [usize; 3]) -> Result<bool, Failure> {
        let (parameters, net, _) = self::network(0, network, true, &[1.0; 2]);
        let labels = vec![0; image[0] * image[1]];
        layers::takes_size(parameters, image, &labels, |x, labels| net.forward(x).cross_entropy(labels))
    }

    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure> {
        let (mut parameters, net, _) =
            network(0, trained.network, trained.normal.is_none(), &vec![1.0; trained.classes.names.len()]);
        fill(&mut parameters, &[])?;
        loaded(trained, parameters, net)
    }

    fn recognise(&self, file: &SafeTensors<'_>) -> Option<DetectedNetwork> {
        let named = |first: &str, net: Net| {
            let [first, last] = torch::sizes(file, first, "classifier.weight");
            let (&[width, channels, _, _], &[classes, _, _, _]) = (&first[..], &last[..]) else { return None };
            let (task, network, input) = (Task::Segnet, Network::small(net, width), InputSpec::Channels(channels));
            Some(DetectedNetwork { task, network, classes, input, whole: false })
        };
        named("encoder.conv1.weight", Net::SegnetBasic).or_else(|| named("features.0.weight", Net::Segnet))
    }
}
