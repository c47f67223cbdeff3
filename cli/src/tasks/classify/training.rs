//! A training of a classifier: batches, loss, scores.

use super::{
    REPORT_SAMPLES,
    network::{Built, Classifier, First, network},
    towers,
};
use crate::{
    Failure,
    data::{Classification, Element, Labelled, Order, Sample},
    metrics::{Confusion, Metric, Metrics, TopK},
    tasks::{Classes, ClassifyNet, ImageInput, On, Predictions, Settings, run, samples, torch},
};
use gradscale::{
    CrossEntropy, Error, Gradients, Input, Parameters, Prefetched, TorchModule, Trainer, Var,
    gradscale_core::backend::Backend, optim::Optimizer,
};

/// Maximum number of images that are evaluated at once.
const CHUNK: usize = 500;
/// Maximum size of an image that is evaluated in chunks of `CHUNK`.
const SMALL_IMAGE_BYTES: usize = 32 * 32 * 3;

/// Returns the most likely class of each row: the first largest, or the first that is NaN, as `argmax` has it.
fn best(logits: &[f32], classes: usize) -> Vec<u32> {
    let best = |row: &[f32]| {
        let first = (0..)
            .zip(row)
            .reduce(|best, one| if best.1.is_nan() || !(one.1 > best.1 || one.1.is_nan()) { best } else { one });
        first.map_or(0, |(class, _)| class)
    };
    logits.chunks_exact(classes.max(1)).map(best).collect()
}

/// Creates the optimizer for a loss that is a mean over a batch, or divided by another number of images.
///
/// # Errors
/// See [`crate::optimizer::Recipe::optimizer`] and [`towers::optimizer`].
pub fn optimizer(settings: &Settings) -> Result<Optimizer, Failure> {
    let ratio = settings.pixels.ratio(settings.batch);
    match settings.network.net.classifier() {
        Some(ClassifyNet::Towers) => towers::optimizer(&settings.recipe, ratio),
        Some(ClassifyNet::Mlp | ClassifyNet::Resnet | ClassifyNet::Vision(_)) | None => {
            settings.recipe.optimizer(ratio)
        }
    }
}

#[derive(Debug)]
pub struct ClassifyTraining<'a> {
    data: &'a Labelled,
    settings: Settings,
    net: Classifier,
    order: Order,
    images: Vec<u8>,
    labels: Vec<u32>,
}

impl<'a> ClassifyTraining<'a> {
    pub fn new(data: &'a Labelled, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let size = [data.train.height, data.train.width, data.train.channels];
        let input = ImageInput { channels: data.channels, ..ImageInput::new(size, [data.mean, data.deviation]) };
        let (parameters, net) = network(seed, settings.network, input, data.classes.len())?;
        let order = Order::new(data.train.count, seed);
        let optimizer = optimizer(&settings)?;
        let task = Self { data, settings, net, order, images: Vec::new(), labels: Vec::new() };
        Ok((task, parameters, optimizer))
    }

    /// Returns the loss of a batch, which training minimises.
    fn loss<'t>(&self, x: Var<'t>, labels: Var<'t>) -> Var<'t> {
        let options = CrossEntropy { divisor: self.settings.pixels.divisor(), ..CrossEntropy::default() };
        self.net.loss(x, labels, &options)
    }
}

impl run::SampleLosses for ClassifyTraining<'_> {
    fn draw_samples(&mut self) -> Vec<Sample> {
        self.order.by_ref().take(self.settings.batch).collect()
    }

    fn has_unusable_data(&self, sample: Sample) -> Result<bool, Failure> {
        let train = &self.data.train;
        Ok(match train.element {
            // All bytes are numbers.
            Element::Byte => false,
            Element::Number => run::numbers(&train.shown(sample)?).iter().any(|value| !value.is_finite()),
        })
    }

    fn sample_loss<B: Backend<Error: 'static>>(
        &self, trainer: &mut Trainer<B>, sample: Sample,
    ) -> Result<f32, Failure> {
        let Classification { height, width, channels, element, ref labels, .. } = self.data.train;
        let (image, label) = (self.data.train.shown(sample)?, [labels[sample.index]]);
        let (size, values) = ([1, height, width, channels], run::values_of(element, &image));
        let batch = [run::input((size, element), &image, &values), Input::u32([1], &label)];
        run::loss_of(trainer, batch, |[x, labels]| self.loss(x, labels))
    }

    fn sample_source(&self, index: usize) -> Option<String> {
        self.data.train.source(index)
    }
}

impl run::TrainingTask for ClassifyTraining<'_> {
    type Batch = Prefetched<2>;

    fn module(&self, layer: &str) -> Option<TorchModule> {
        torch::module(layer, &self.net.flattened())
    }

    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Prefetched<2>, Failure> {
        self.images.clear();
        self.labels.clear();
        let train = &self.data.train;
        let Classification { height, width, channels, element, ref labels, .. } = *train;
        let samples = run::SampleLosses::draw_samples(self);
        for (sample, image) in samples.iter().zip(train.batch(&samples)) {
            self.images.extend_from_slice(&image?);
            self.labels.push(labels[sample.index]);
        }
        let count = self.settings.batch;
        let (size, labels) = ([count, height, width, channels], Input::u32([count], &self.labels));
        Ok(match element {
            Element::Byte => trainer.prefetch([Input::u8(size, &self.images), labels])?,
            Element::Number => trainer.prefetch([Input::f32(size, &run::numbers(&self.images)), labels])?,
        })
    }

    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<2>,
    ) -> Result<Gradients, Error<B::Error>> {
        trainer.backward(batch, |[x, labels]| self.loss(x, labels))
    }

    fn ratio(&self) -> f64 {
        self.settings.pixels.ratio(self.settings.batch)
    }

    /// Evaluates the classifier on a split, with running statistics in batch norm.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let test = match (on, &self.data.validation) {
            (On::Validation, Some(validation)) => validation,
            (On::Validation | On::Test, _) => &self.data.test,
        };
        let Classification { height, width, channels, element, ref labels, .. } = *test;
        let classes = self.data.classes.len();
        let mut confusion = Confusion::new(classes);
        let (mut confused, mut top_5) = (confusion.clone(), TopK::new(5));
        // Large images: a batch with about the memory of that many small ones.
        let chunk = (CHUNK * SMALL_IMAGE_BYTES / test.bytes().max(1)).clamp(1, CHUNK);
        for (i, labels) in labels.chunks(chunk).enumerate() {
            let first = i * chunk;
            let images = test.range(first..first + labels.len())?;
            let size = [labels.len(), height, width, channels];
            let logits = run::logits(trainer, &self.net, (size, element), &images)?;
            confusion.add(labels, &best(&logits, classes), None)?;
            top_5.add(&logits, labels, None)?;
            if let Built::Towers(towers) = &self.net.net {
                let first = First(&self.net, towers);
                confused.add(labels, &run::predict(trainer, &first, (size, element), &images)?, None)?;
            }
        }
        Ok(match self.net.net {
            Built::Towers(_) => Metrics::of_towers(&confused, &confusion),
            Built::Mlp(_) | Built::Resnet(_) | Built::Vision(_) if classes > 5 => {
                Metrics::of_images(&confusion).with(Metric::Top5, top_5.share())
            }
            Built::Mlp(_) | Built::Resnet(_) | Built::Vision(_) => Metrics::of_images(&confusion),
        })
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Predictions, Failure> {
        let test = &self.data.test;
        let shown: Vec<usize> = samples(test.count, REPORT_SAMPLES).collect();
        let mut images = Vec::new();
        for image in &shown {
            images.extend_from_slice(&test.image(*image)?);
        }
        let size = [shown.len(), test.height, test.width, test.channels];
        run::predict(trainer, &self.net, (size, test.element), &images).map(Predictions::Classes)
    }

    fn position(&self) -> u64 {
        self.order.position()
    }

    fn seek(&mut self, position: u64) {
        self.order = self.order.clone().at(position);
    }

    fn classes(&self) -> Classes {
        let (names, columns) = (self.data.classes.clone(), self.data.columns.clone());
        Classes { names, input: Some(self.net.input), columns, ..Classes::default() }
    }
}
