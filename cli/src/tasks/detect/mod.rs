//! Detection: SSD, from pictures to boxes around what is in them.

mod data;
mod network;
mod training;

use super::{
    Answers, Apply, Dataset, Kind, Net, Network, Normal, Pixels, Reads, Recognised, Task, Trained, apply::Fill, torch,
};
use crate::{
    Failure,
    data::{Boxed, IMAGES, Reading, Whole},
    device::Work,
};
use gradscale::{Cpu, Input, Method, Parameters, PlanRow, Trainer, core::backend::Backend, metrics::Truth, optim::Sgd};
use network::{Detector, kept, network};
use safetensors::SafeTensors;
use std::path::Path;

/// Pictures that a report shows.
const SHOWN: usize = 6;
/// Learning rate: the paper's.
const LR: f64 = 0.001;
/// Classes of the network that a plan is made for.
const PLANNED: usize = 3;

/// Colours that are easy to tell apart.
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

/// What boxes of a class are drawn in.
#[must_use]
pub const fn colour(class: usize) -> [u8; 3] {
    COLOURS[class % COLOURS.len()]
}

/// The task.
pub(super) struct Detecting;

impl Kind for Detecting {
    fn net(&self) -> Net {
        Net::Ssd300
    }

    fn batch(&self) -> usize {
        8
    }

    fn lr(&self, _: Net) -> f64 {
        LR
    }

    fn divisor(&self) -> Pixels {
        Pixels::Batch
    }

    fn counted(&self, batch: usize, _: usize) -> (&'static str, usize) {
        ("images", batch)
    }

    fn mean_over(&self) -> &'static str {
        "matched boxes"
    }

    fn network(&self, network: Network) -> String {
        network.words(if network.net == Net::Ssd512 { "SSD-512" } else { "SSD-300" })
    }

    fn load(&self, path: Option<&Path>, reading: &Reading, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        reading.refuse("pictures with boxes", IMAGES)?;
        Ok(Box::new(match path {
            Some(path) => Boxed::load(path, reading)?,
            None => Boxed::synthetic(seed, reading),
        }))
    }

    fn layers(&self, of: Network, method: Method) -> Result<Vec<PlanRow>, Failure> {
        let (parameters, net) = network(0, of, PLANNED, false);
        let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
        let trainer = Trainer::new(device, parameters, Sgd::default(), method)?;
        let (side, boxes) = (net.side(), net.boxes());
        let middle = Truth { class: 1, corners: [0.25, 0.25, 0.75, 0.75], difficult: false };
        let targets = net.targets(std::iter::once(&[middle][..]));
        let pixels = vec![0; side * side * 3];
        let batch = [
            Input::u8([1, side, side, 3], &pixels),
            Input::u32([1, boxes], &targets.labels),
            Input::f32([1, 1, boxes, 4], &targets.codes),
            Input::f32([1], &targets.negatives),
            Input::f32([1], std::slice::from_ref(&targets.share)),
        ];
        Ok(trainer.plan(batch, |all| net.loss(all))?)
    }

    fn apply(&self, trained: Trained<'_>, fill: Fill<'_>) -> Result<Box<dyn Apply>, Failure> {
        let Trained { device, threads, method, normal, .. } = trained;
        let (mut parameters, net) = network(0, trained.network, trained.classes.names.len(), normal.is_some());
        fill(&mut parameters, &[])?;
        device.open(threads, Loading { parameters, net, method, normal })
    }

    /// Torchvision's `ssd300_vgg16`, and such as are built like it.
    fn recognise(&self, file: &SafeTensors<'_>) -> Option<Recognised> {
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
        let network = Network { net, width, small };
        Some(Recognised { task: Task::Detect, network, classes, input: Reads::Channels(3), whole: false })
    }
}

/// A trained network before it is on its device.
struct Loading {
    parameters: Parameters,
    net: Detector,
    method: Method,
    normal: Option<Normal>,
}

impl Work for Loading {
    type Output = Box<dyn Apply>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Box<dyn Apply>, Failure> {
        let Self { parameters, net, method, normal } = self;
        // Nothing is trained: the optimizer has no rate.
        let trainer = Trainer::new(device, parameters, Sgd::new(0.0), method)?;
        Ok(Box::new(Looking { trainer, net, normal }))
    }
}

struct Looking<B: Backend> {
    trainer: Trainer<B>,
    net: Detector,
    normal: Option<Normal>,
}

impl<B: Backend<Error: 'static>> Apply for Looking<B> {
    /// Of a picture of any size.
    fn predict(&mut self, [height, width, channels]: [usize; 3], pixels: &[u8]) -> Result<Answers, Failure> {
        let side = self.net.side();
        let shown = Whole { pixels: pixels.into(), size: [height, width], channels }.resized_to([side; 2]);
        let (net, size) = (&self.net, [1, side, side, channels]);
        let answers = match &self.normal {
            None => self.trainer.evaluate([Input::u8(size, &shown)], |[x]| net.answers(x))?,
            Some(normal) => {
                let values = normal.of(&shown, channels);
                self.trainer.evaluate([Input::f32(size, &values)], |[x]| net.answers(x))?
            }
        };
        Ok(Answers::Boxes(net.found(&answers.data).iter().map(|one| kept(one)).collect()))
    }
}
