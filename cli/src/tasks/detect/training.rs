//! A training of a detector: batches, loss, scores.

use super::{
    REPORT_SAMPLES, colour,
    network::{DEVIATION, Detects, MEANS, kept, network},
};
use crate::{
    Failure,
    data::{Boxed, Order, Pictured, Sample, Shown},
    metrics::{AveragePrecision, Metrics},
    tasks::{Classes, ImageInput, LossDivisor, On, Predictions, Settings, run, samples, torch},
};
use gradscale::{
    Error, Gradients, Input, Parameters, TorchModule, Trainer, boxes::Detection, gradscale_core::backend::Backend,
    optim::Optimizer,
};
use std::collections::BTreeSet;

/// Number of pictures that are evaluated at once.
const CHUNK: usize = 8;
/// Minimum overlap (intersection over union) of a correct detection.
const MATCH_IOU: f32 = 0.5;
/// Maximum factor by which large and small pictures are zoomed out. Small pictures would lose their objects at 4.
const MAX_ZOOM_OUT: [f64; 2] = [4.0, 1.5];

#[derive(Debug)]
pub struct DetectTraining<'a, D> {
    data: &'a Boxed,
    settings: Settings,
    net: D,
    order: Order,
}

impl<'a, D: Detects> DetectTraining<'a, D> {
    pub fn new(data: &'a Boxed, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let (parameters, net) = network(seed, settings.network, data.classes.len(), false);
        let optimizer = settings.recipe.optimizer(settings.pixels.ratio(settings.batch))?;
        let order = Order::new(data.train.len(), seed);
        Ok((Self { data, settings, net, order }, parameters, optimizer))
    }

    /// Returns augmented training pictures.
    fn shown(&self, samples: &[Sample]) -> Result<Vec<Shown>, Failure> {
        let farthest = MAX_ZOOM_OUT[usize::from(self.settings.network.small)];
        Ok(self.data.batch(samples, self.net.side(), farthest)?)
    }

    /// Runs the detector on some pictures, and returns the boxes of each.
    fn found<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, pictures: &[&Pictured],
    ) -> Result<Vec<Vec<Detection>>, Failure> {
        let (side, mut all) = (self.net.side(), Vec::new());
        for part in pictures.chunks(CHUNK) {
            let mut pixels = Vec::with_capacity(part.len() * side * side * 3);
            for picture in part {
                pixels.extend(picture.plain(side)?.pixels);
            }
            all.extend(self.net.found(trainer, Input::u8([part.len(), side, side, 3], &pixels))?);
        }
        Ok(all)
    }
}

impl<D: Detects> run::SampleLosses for DetectTraining<'_, D> {
    fn draw_samples(&mut self) -> Vec<Sample> {
        self.order.by_ref().take(self.settings.batch).collect()
    }

    fn sample_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, sample: Sample,
    ) -> Result<f32, Failure> {
        self.net.evaluated_loss(trainer, self.shown(&[sample])?, vec![sample.word])
    }

    fn sample_source(&self, index: usize) -> Option<String> {
        self.data.train.get(index).map(|picture| picture.name.clone())
    }
}

impl<D: Detects> run::TrainingTask for DetectTraining<'_, D> {
    type Batch = D::Batch;

    fn module(&self, layer: &str) -> Option<TorchModule> {
        torch::module(layer, &self.net.flattened())
    }

    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<D::Batch, Failure> {
        let samples = run::SampleLosses::draw_samples(self);
        let shown = self.shown(&samples)?;
        // A custom divisor replaces the number of pictures; the loss of a picture is that of a counted box.
        let factor = match self.settings.pixels {
            LossDivisor::Batch => 1.0,
            LossDivisor::Fixed(divisor) => samples.len() as f32 / divisor as f32,
        };
        self.net.batch(trainer, shown, samples.iter().map(|sample| sample.word).collect(), factor)
    }

    fn backward<B: Backend>(&self, trainer: &mut Trainer<B>, batch: D::Batch) -> Result<Gradients, Error<B::Error>> {
        self.net.backward(trainer, batch)
    }

    fn ratio(&self) -> f64 {
        self.settings.pixels.ratio(self.settings.batch)
    }

    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let pictures = match (on, &self.data.validation) {
            (On::Validation, Some(validation)) => validation,
            (On::Validation | On::Test, _) => &self.data.test,
        };
        let mut precision = AveragePrecision::new(self.data.classes.len(), MATCH_IOU);
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        let all: Vec<&Pictured> = pictures.iter().collect();
        for (picture, found) in all.iter().zip(self.found(trainer, &all)?) {
            precision.add(&found, &picture.truths);
            seen[0].extend(found.iter().map(|one| one.class));
            seen[1].extend(picture.truths.iter().map(|one| one.class));
        }
        let [found, there] = seen;
        let only = found.first().filter(|_| found.len() == 1 && there.len() > 1);
        let only = only.and_then(|class| u32::try_from(*class).ok()).map(|class| class - 1);
        Ok(Metrics::of_boxes(&precision, only))
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure> {
        let test = &self.data.test;
        let shown: Vec<&Pictured> = samples(test.len(), REPORT_SAMPLES).map(|i| &test[i]).collect();
        let found = self.found(trainer, &shown)?;
        Ok(Predictions::Boxes(found.iter().map(|one| kept(one)).collect()))
    }

    fn position(&self) -> u64 {
        self.order.position()
    }

    fn seek(&mut self, position: u64) {
        self.order = self.order.clone().at(position);
    }

    fn classes(&self) -> Classes {
        let (side, names) = (self.net.side(), self.data.classes.clone());
        let input =
            ImageInput { channels: Some([MEANS, [DEVIATION; 3]]), ..ImageInput::new([side, side, 3], [0.0, 1.0]) };
        Classes { colours: (0..names.len()).map(colour).collect(), names, input: Some(input), ..Classes::default() }
    }
}
