//! SegNetBasic on segmentation data, as in the paper's section 5.4.

use super::Pixels;
use crate::{
    Failure,
    data::{Batches, Segmentation, Split, in_order, median_frequency},
    metrics::Confusion,
};
use gradscale::{
    Batch, CrossEntropy, Method, Parameter, Parameters, StepOutcome, TraceError, Trainer, Var,
    core::{backend::Backend, descriptor::Divisor, stats::Detail},
    models::SegNet,
    nn::Module,
    optim::Optimizer,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The paper's settings.
const LR: f64 = 0.1;
const MOMENTUM: f32 = 0.9;
const DECAY: f64 = 5e-4;
/// Most batches that batch norm's statistics are recomputed from.
const STATISTICS_BATCHES: usize = 32;

/// What a run depends on beside method and seed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Images in a batch.
    pub batch: usize,
    /// Channels.
    pub width: usize,
    /// Divisor of the loss.
    pub pixels: Pixels,
}

/// Scores, as shares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize))]
pub struct Metrics {
    /// Mean intersection over union.
    pub miou: f64,
    /// Mean over classes of the share of its pixels that is right.
    pub class_accuracy: f64,
    /// Share of all pixels that is right.
    pub global_accuracy: f64,
}

/// What a checkpoint says of its classes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Classes {
    /// Names; ids are positions.
    pub names: Vec<String>,
    /// A colour of each, R G B.
    pub colours: Vec<[u8; 3]>,
}

/// The network with its parameters, first values by `seed`, and the weights of the loss.
#[must_use]
pub fn network(seed: u64, width: usize, class_weights: &[f32]) -> (Parameters, SegNet, Parameter) {
    let classes = class_weights.len();
    let mut parameters = Parameters::seeded(seed);
    let net = SegNet::new(&mut parameters.at("segnet"), 3, width, classes);
    let weights = parameters.at("loss").constant("weights", [classes], class_weights);
    (parameters, net, weights)
}

/// The optimizer of all runs.
#[must_use]
pub fn optimizer(ratio: f64) -> Optimizer {
    #[expect(clippy::cast_possible_truncation, reason = "rounded")]
    let decay = (DECAY / ratio) as f32;
    Optimizer::sgd(LR * ratio).momentum(MOMENTUM).decay(decay)
}

/// The images of a split that a report shows: four, spread over it.
pub fn samples(split: &Split) -> impl Iterator<Item = usize> {
    let (count, shown) = (split.count, split.count.min(4));
    (0..shown).map(move |i| (2 * i + 1) * count / (2 * shown))
}

/// One training.
#[derive(Debug)]
pub struct Run<'a, B: Backend> {
    data: &'a Segmentation,
    settings: Settings,
    net: SegNet,
    weights: Parameter,
    trainer: Trainer<B>,
    batches: Batches<'a>,
    images: Vec<u8>,
    labels: Vec<u8>,
}

impl<'a, B: Backend> Run<'a, B>
where
    B::Error: 'static,
{
    /// A network with first weights by `seed`.
    ///
    /// # Errors
    /// A batch larger than the training set, a device without memory.
    pub fn new(
        device: B, data: &'a Segmentation, settings: Settings, method: Method, seed: u64,
    ) -> Result<Self, Failure> {
        let batches =
            Batches::new(&data.train, settings.batch, seed).map_err(|cause| Failure::at(&data.name, cause))?;
        let frequencies = median_frequency(&data.train, data.classes.len(), data.ignore);
        let (parameters, net, weights) = network(seed, settings.width, &frequencies);
        let ratio = settings.pixels.ratio(settings.batch * data.train.pixels());
        let trainer = Trainer::new(device, parameters, optimizer(ratio), method)?;
        Ok(Self { data, settings, net, weights, trainer, batches, images: Vec::new(), labels: Vec::new() })
    }

    /// One step. The loss is that of a pixel.
    ///
    /// # Errors
    /// Too many skips in a row, or the device's.
    pub fn step(&mut self) -> Result<StepOutcome, Failure> {
        self.batches.next(&mut self.images, &mut self.labels);
        let Split { height, width, .. } = self.data.train;
        let count = self.settings.batch;
        let batch =
            [Batch::u8([count, height, width, 3], &self.images), Batch::u8([count, height, width, 1], &self.labels)];
        let divisor = match self.settings.pixels {
            Pixels::Batch => Divisor::Rows,
            Pixels::Fixed(number) => Divisor::Fixed(number as f32),
        };
        let (net, weights, ignore) = (&self.net, &self.weights, self.data.ignore);
        let gradients = self.trainer.backward(batch, |[x, labels]| {
            let options =
                CrossEntropy { weights: Some(x.tape().parameter(weights)), ignore: ignore.map(u32::from), divisor };
            net.forward(x)?.cross_entropy_with(labels, &options)
        })?;
        let outcome = self.trainer.step(gradients)?;
        let ratio = self.settings.pixels.ratio(count * self.data.train.pixels());
        #[expect(clippy::cast_possible_truncation, reason = "rounded")]
        let loss = (f64::from(outcome.loss) * ratio) as f32;
        Ok(StepOutcome { loss, ..outcome })
    }

    /// Scores on the test images, with batch norm's statistics recomputed from training images.
    ///
    /// # Errors
    /// The device's.
    pub fn evaluate(&mut self) -> Result<Metrics, Failure> {
        let train = &self.data.train;
        let fit = |cause| Failure::at(&self.data.name, cause);
        for (i, (images, _, count)) in
            in_order(train, self.settings.batch).map_err(fit)?.take(STATISTICS_BATCHES).enumerate()
        {
            if count < self.settings.batch {
                break;
            }
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let keep = i as f32 / (i + 1) as f32;
            let batch = [Batch::u8([count, train.height, train.width, 3], images)];
            let net = &self.net;
            self.trainer.update_statistics(keep, batch, |[x]| net.forward(x))?;
        }
        let mut confusion = Confusion::new(self.data.classes.len());
        let test = &self.data.test;
        for (images, labels, count) in in_order(test, self.settings.batch.min(test.count)).map_err(fit)? {
            let batch = [Batch::u8([count, test.height, test.width, 3], images)];
            let predictions = self.predict(batch)?;
            confusion.add(labels, &predictions, self.data.ignore);
        }
        Ok(Metrics {
            miou: confusion.miou(),
            class_accuracy: confusion.class_accuracy(),
            global_accuracy: confusion.global_accuracy(),
        })
    }

    /// Classes predicted for the test images that a report shows.
    ///
    /// # Errors
    /// The device's.
    pub fn samples(&mut self) -> Result<Vec<u8>, Failure> {
        let test = &self.data.test;
        let size = test.pixels() * 3;
        let shown: Vec<usize> = samples(test).collect();
        let images: Vec<u8> = shown.iter().flat_map(|i| &test.images[i * size..(i + 1) * size]).copied().collect();
        self.predict([Batch::u8([shown.len(), test.height, test.width, 3], &images)])
    }

    /// The class of every pixel.
    fn predict(&mut self, batch: [Batch<'_>; 1]) -> Result<Vec<u8>, Failure> {
        let net = &self.net;
        let best = self
            .trainer
            .evaluate(batch, |[x]: [Var<'_>; 1]| -> Result<Var<'_>, TraceError> { net.forward(x)?.argmax() })?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "classes are bytes")]
        Ok(best.data.into_iter().map(|class| class as u8).collect())
    }

    /// Everything that a training needs to go on, with metadata of the caller's.
    ///
    /// # Errors
    /// The device's.
    pub fn save(&self, metadata: &BTreeMap<String, String>) -> Result<Vec<u8>, Failure> {
        let mut metadata = metadata.clone();
        metadata.insert("position".to_owned(), self.batches.position().to_string());
        let classes = Classes { names: self.data.classes.clone(), colours: self.data.colours.clone() };
        let classes = serde_json::to_string(&classes).map_err(|error| Failure::at("checkpoint", error))?;
        metadata.insert("classes".to_owned(), classes);
        Ok(self.trainer.save(&metadata)?)
    }

    /// Goes on from what [`Run::save`] wrote.
    ///
    /// # Errors
    /// Bytes that are no checkpoint of this training.
    pub fn load(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let metadata = self.trainer.load(bytes)?;
        let position = metadata.get("position").and_then(|position| position.parse().ok());
        let position = position.ok_or_else(|| Failure::at("checkpoint", "no position in the data"))?;
        self.batches = self.batches.clone().at(position);
        Ok(())
    }

    /// Gives every row a histogram, in every step, and observes what the paper's rules would decide from.
    pub fn observe_fully(&mut self) {
        self.trainer.set_detail(Detail::Full);
        self.trainer.observe_operands();
    }

    /// The trainer, to look into.
    pub const fn trainer(&self) -> &Trainer<B> {
        &self.trainer
    }
}
