//! Object detection: SSD and Faster R-CNN.

mod data;
pub(super) mod multibox;
mod network;
pub(super) mod proposing;
pub(super) mod training;

use super::{
    CheckpointInfo, Dataset, DetectedNetwork, Export, InferenceModel, InputNormalization, InputSpec, LossDivisor, Net,
    Network, Predictions, Task, TaskSpec, inference::WeightLoader, torch,
};
use crate::{
    Failure,
    data::{Boxed, DataOptions, IMAGES, Whole},
    device::Work,
};
use gradscale::{Cpu, Input, Method, Parameters, PlanRow, Trainer, gradscale_core::backend::Backend, optim::Sgd};
use multibox::Multibox;
use network::{Detects, kept, network};
use proposing::Proposing;
use safetensors::SafeTensors;
use std::path::Path;

/// Number of pictures that a report shows.
const REPORT_SAMPLES: usize = 6;
/// Default learning rate of detectors, that of the paper.
const LR: f64 = 0.001;
/// Number of classes of the network for which a plan is printed.
const PLANNED: usize = 3;

/// Colours of boxes, which are easy to tell apart.
const COLOURS: [[u8; 3]; 10] = [
    [230, 30, 50],
    [30, 100, 230],
    [20, 150, 60],
    [245, 140, 0],
    [145, 40, 190],
    [0, 170, 190],
    [190, 120, 0],
    [240, 60, 200],
    [90, 90, 90],
    [120, 200, 0],
];

/// Returns the colour in which boxes of a class are drawn.
#[must_use]
pub const fn colour(class: usize) -> [u8; 3] {
    COLOURS[class % COLOURS.len()]
}

/// Task `detect`: boxes of objects in images.
pub(super) struct Detecting;

impl TaskSpec for Detecting {
    fn net(&self) -> Net {
        Net::Ssd300
    }

    fn batch(&self) -> usize {
        8
    }

    fn lr(&self, _: Net) -> f64 {
        LR
    }

    fn divisor(&self) -> LossDivisor {
        LossDivisor::Batch
    }

    fn loss_denominator(&self, batch: usize, _: usize) -> (&'static str, usize) {
        ("images", batch)
    }

    fn loss_unit(&self, net: Net) -> &'static str {
        if net == Net::FasterRcnn { "drawn anchors and regions" } else { "matched boxes" }
    }

    fn network(&self, network: Network) -> String {
        let named = [(Net::FasterRcnn, "Faster R-CNN"), (Net::Ssd512, "SSD-512")];
        let name = named.iter().find(|(net, _)| *net == network.net);
        network.words(name.map_or("SSD-300", |(_, name)| name))
    }

    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        reading.refuse("pictures with boxes", IMAGES)?;
        Ok(Box::new(match path {
            Some(path) => Boxed::load(path, reading)?,
            None => Boxed::synthetic(seed, reading),
        }))
    }

    fn layers(&self, of: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        if of.net == Net::FasterRcnn { planned::<Proposing>(of, method) } else { planned::<Multibox>(of, method) }
    }

    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure> {
        if trained.network.net == Net::FasterRcnn {
            return applied::<Proposing>(trained, fill);
        }
        applied::<Multibox>(trained, fill)
    }

    /// Recognises torchvision's `ssd300_vgg16`, and such as are built like it; its Faster R-CNN with VGG-16.
    fn recognise(&self, file: &SafeTensors<'_>) -> Option<DetectedNetwork> {
        let (network, classes) = multibox(file).or_else(|| proposing(file))?;
        Some(DetectedNetwork { task: Task::Detect, network, classes, input: InputSpec::Channels(3), whole: false })
    }
}

fn multibox(file: &SafeTensors<'_>) -> Option<(Network, usize)> {
    let head = |map: usize| format!("head.classification_head.module_list.{map}.weight");
    let [first, scores] = torch::sizes(file, "backbone.features.0.weight", &head(0));
    let (&[width, 3, _, _], &[answers, ..]) = (&first[..], &scores[..]) else { return None };
    // Four default boxes at each place of the first map; the background is no class.
    let classes = (answers / 4).checked_sub(1)?;
    let has = |map: usize| file.tensor(&head(map)).is_ok();
    let (net, small) = match (has(6), has(5), has(4)) {
        (true, ..) => (Net::Ssd512, false),
        (false, true, _) => (Net::Ssd300, false),
        (false, false, true) => (Net::Ssd512, true),
        (false, false, false) => (Net::Ssd300, true),
    };
    Some((Network { net, width, small }, classes))
}

fn proposing(file: &SafeTensors<'_>) -> Option<(Network, usize)> {
    let [first, scores] = torch::sizes(file, "backbone.0.weight", "roi_heads.box_predictor.cls_score.weight");
    let (&[width, 3, _, _], &[answers, _]) = (&first[..], &scores[..]) else { return None };
    // The paper's has no batch norm, whose weights come next.
    let small = file.tensor("backbone.1.weight").is_ok();
    Some((Network { net: Net::FasterRcnn, width, small }, answers.checked_sub(1)?))
}

fn planned<D: Detects>(of: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
    let (parameters, net) = network::<D>(0, of, PLANNED, false);
    let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
    net.plan(&Trainer::new(device, parameters, Sgd::default(), method)?)
}

fn applied<D: Detects>(
    trained: CheckpointInfo<'_>, fill: WeightLoader<'_>,
) -> Result<Box<dyn InferenceModel>, Failure> {
    let CheckpointInfo { device, threads, method, normal, .. } = trained;
    let (mut parameters, net) = network::<D>(0, trained.network, trained.classes.names.len(), normal.is_some());
    fill(&mut parameters, &net.flattened())?;
    device.open(threads, Loading { parameters, net, method, normal })
}

/// Loaded detector that is still to be placed on its device.
struct Loading<D> {
    parameters: Parameters,
    net: D,
    method: Method,
    normal: Option<InputNormalization>,
}

impl<D: Detects> Work for Loading<D> {
    type Output = Box<dyn InferenceModel>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn InferenceModel>, Failure> {
        let Self { parameters, net, method, normal } = self;
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), method)?;
        Ok(Box::new(Looking { trainer, net, normal }))
    }
}

struct Looking<B: Backend, D> {
    trainer: Trainer<B>,
    net: D,
    normal: Option<InputNormalization>,
}

impl<B: Backend<Error: 'static>, D: Detects> InferenceModel for Looking<B, D> {
    /// Detects boxes in an image of any size.
    fn predict(&mut self, [height, width, channels]: [usize; 3], pixels: &[u8]) -> Result<Predictions, Failure> {
        let side = self.net.side();
        let shown = Whole { pixels: pixels.into(), size: [height, width], channels }.resized_to([side; 2]);
        let size = [1, side, side, channels];
        let found = match &self.normal {
            None => self.net.found(&mut self.trainer, Input::u8(size, &shown))?,
            Some(normal) => self.net.found(&mut self.trainer, Input::f32(size, &normal.normalize(&shown, channels)))?,
        };
        Ok(Predictions::Boxes(found.iter().map(|one| kept(one)).collect()))
    }

    fn onnx(&mut self, asked: &Export) -> Result<Vec<u8>, Failure> {
        let side = self.net.side();
        let pixels = vec![0; asked.batch * side * side * 3];
        Ok(self.net.onnx(&mut self.trainer, Input::u8([asked.batch, side, side, 3], &pixels), asked.half)?)
    }
}
