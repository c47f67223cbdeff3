//! A training of a SegNet: batches, loss, scores.

use super::{
    REPORT_SAMPLES,
    network::{Pixelwise, network},
};
use crate::{
    Failure,
    data::{Batches, Element, Sample, Segmentation, Split, in_order},
    metrics::{Confusion, Metrics},
    tasks::{Classes, On, Predictions, Settings, run, samples},
};
use gradscale::{
    CrossEntropy, Error, Gradients, Input, Parameter, Parameters, Prefetched, Trainer, Var,
    gradscale_core::backend::Backend, nn::Module, optim::Optimizer,
};

/// Maximum number of batches from which batch norm's statistics are recomputed.
const STATISTICS_BATCHES: usize = 32;

/// Creates the optimizer for a loss that is a mean over a batch, or divided by another number of pixels.
///
/// # Errors
/// See [`crate::optimizer::Recipe::optimizer`].
pub fn optimizer(settings: &Settings, data: &Segmentation) -> Result<Optimizer, Failure> {
    settings.recipe.optimizer(settings.pixels.ratio(settings.batch * data.train.pixels()))
}

#[derive(Debug)]
pub struct SegnetTraining<'a> {
    data: &'a Segmentation,
    settings: Settings,
    net: Pixelwise,
    weights: Parameter,
    batches: Batches<'a>,
    images: Vec<u8>,
    labels: Vec<u8>,
}

impl<'a> SegnetTraining<'a> {
    pub fn new(
        data: &'a Segmentation, settings: Settings, seed: u64,
    ) -> Result<(Self, Parameters, Optimizer), Failure> {
        let batches =
            Batches::new(&data.train, settings.batch, seed).map_err(|cause| Failure::at(&data.name, cause))?;
        let (parameters, net, weights) = network(seed, settings.network, true, &data.weights);
        let optimizer = optimizer(&settings, data)?;
        let task = Self { data, settings, net, weights, batches, images: Vec::new(), labels: Vec::new() };
        Ok((task, parameters, optimizer))
    }

    /// Returns the loss of a batch, which training minimises.
    fn loss<'t>(&self, x: Var<'t>, labels: Var<'t>) -> Var<'t> {
        let weights = Some(x.tape().parameter(&self.weights));
        let (ignore, divisor) = (self.data.ignore.map(u32::from), self.settings.pixels.divisor());
        self.net.forward(x).cross_entropy_with(labels, &CrossEntropy { weights, ignore, divisor })
    }
}

impl run::SampleLosses for SegnetTraining<'_> {
    fn draw_samples(&mut self) -> Vec<Sample> {
        self.batches.draw()
    }

    fn sample_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, sample: Sample,
    ) -> Result<f32, Failure> {
        let (mut image, mut labels) = (Vec::new(), Vec::new());
        self.batches.read(&[sample], &mut image, &mut labels)?;
        let Split { height, width, .. } = self.data.train;
        let batch = [Input::u8([1, height, width, 3], &image), Input::u8([1, height, width, 1], &labels)];
        run::loss_of(trainer, batch, |[x, labels]| self.loss(x, labels))
    }

    fn sample_source(&self, index: usize) -> Option<String> {
        self.data.train.source(index)
    }
}

impl run::TrainingTask for SegnetTraining<'_> {
    type Batch = Prefetched<2>;

    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Prefetched<2>, Failure> {
        self.batches.next(&mut self.images, &mut self.labels)?;
        let Split { height, width, .. } = self.data.train;
        let size = |channels| [self.settings.batch, height, width, channels];
        Ok(trainer.prefetch([Input::u8(size(3), &self.images), Input::u8(size(1), &self.labels)])?)
    }

    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<2>,
    ) -> Result<Gradients, Error<B::Error>> {
        trainer.backward(batch, |[x, labels]| self.loss(x, labels))
    }

    fn ratio(&self) -> f64 {
        self.settings.pixels.ratio(self.settings.batch * self.data.train.pixels())
    }

    /// Evaluates with batch-norm statistics recomputed from training images.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let train = &self.data.train;
        let fit = |cause| Failure::at(&self.data.name, cause);
        for (i, part) in in_order(train, self.settings.batch).map_err(fit)?.take(STATISTICS_BATCHES).enumerate() {
            let (images, _, count) = part?;
            if count < self.settings.batch {
                break;
            }
            #[expect(clippy::cast_precision_loss, reason = "a small number")]
            let keep = i as f32 / (i + 1) as f32;
            let batch = [Input::u8([count, train.height, train.width, 3], &images)];
            trainer.update_statistics(keep, batch, |[x]| self.net.forward(x))?;
        }
        let mut confusion = Confusion::new(self.data.classes.len());
        let test = match (on, &self.data.validation) {
            (On::Validation, Some(validation)) => validation,
            (On::Validation | On::Test, _) => &self.data.test,
        };
        for part in in_order(test, self.settings.batch.min(test.count)).map_err(fit)? {
            let (images, labels, count) = part?;
            let size = [count, test.height, test.width, 3];
            let predictions = run::predict(trainer, &self.net, (size, Element::Byte), &images)?;
            confusion.add(&labels, &predictions, self.data.ignore.map(u32::from))?;
        }
        Ok(Metrics::of_pixels(&confusion))
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure> {
        let test = &self.data.test;
        let shown: Vec<usize> = samples(test.count, REPORT_SAMPLES).collect();
        let mut images = Vec::new();
        for image in &shown {
            images.extend_from_slice(&test.images.get(*image, 3 * test.pixels())?);
        }
        let size = [shown.len(), test.height, test.width, 3];
        run::predict(trainer, &self.net, (size, Element::Byte), &images).map(Predictions::Classes)
    }

    fn position(&self) -> u64 {
        self.batches.position()
    }

    fn seek(&mut self, position: u64) {
        self.batches = self.batches.clone().at(position);
    }

    fn classes(&self) -> Classes {
        Classes {
            names: self.data.classes.clone(),
            colours: self.data.colours.clone(),
            values: self.data.values.clone(),
            ..Classes::default()
        }
    }
}
