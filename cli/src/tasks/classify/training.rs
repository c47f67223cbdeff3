//! A training of a classifier: batches, loss, scores.

use super::{
    SHOWN,
    network::{Built, Classifier, First, Net, network},
    towers,
};
use crate::{
    Failure,
    data::{Classification, Element, Labelled, Order, Sample},
    metrics::{Confusion, Metrics},
    tasks::{Classes, ImageInput, On, Settings, run, samples},
};
use gradscale::{
    CrossEntropy, Error, Gradients, Input, Parameters, Prefetched, Trainer, core::backend::Backend, optim::Optimizer,
};

/// Images of one evaluation.
const CHUNK: usize = 500;

/// The optimizer for a loss that is a mean over a batch, or divided by another number of images.
///
/// # Errors
/// See [`crate::optimizer::Recipe::optimizer`] and [`towers::optimizer`].
pub fn optimizer(settings: &Settings) -> Result<Optimizer, Failure> {
    let ratio = settings.pixels.ratio(settings.batch);
    match settings.net {
        Net::Mlp | Net::Resnet => settings.recipe.optimizer(ratio),
        Net::Towers => towers::optimizer(&settings.recipe, ratio),
    }
}

#[derive(Debug)]
pub struct Learning<'a> {
    data: &'a Labelled,
    settings: Settings,
    net: Classifier,
    order: Order,
    images: Vec<u8>,
    labels: Vec<u8>,
}

impl<'a> Learning<'a> {
    pub fn new(data: &'a Labelled, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let size = [data.train.height, data.train.width, data.train.channels];
        let input = ImageInput { size, mean: data.mean, deviation: data.deviation };
        let (parameters, net) = network(seed, settings.net, input, settings.width, data.classes.len());
        let order = Order::new(data.train.count, seed);
        let optimizer = optimizer(&settings)?;
        let task = Self { data, settings, net, order, images: Vec::new(), labels: Vec::new() };
        Ok((task, parameters, optimizer))
    }
}

impl run::Task for Learning<'_> {
    type Batch = Prefetched<2>;

    fn prefetch<B: Backend<Error: 'static>>(&mut self, trainer: &mut Trainer<B>) -> Result<Prefetched<2>, Failure> {
        self.images.clear();
        self.labels.clear();
        let train = &self.data.train;
        let Classification { height, width, channels, element, ref labels, .. } = *train;
        let samples: Vec<Sample> = self.order.by_ref().take(self.settings.batch).collect();
        let numbers: Vec<usize> = samples.iter().map(|sample| sample.index).collect();
        for (sample, image) in samples.iter().zip(train.images(&numbers)) {
            let image = image?;
            // Letters and digits are not what they are in a mirror; things in colour photographs are.
            if sample.flip() && channels == 3 {
                let rows = image.chunks_exact(width * channels);
                rows.for_each(|row| self.images.extend(row.rchunks_exact(channels).flatten()));
            } else {
                self.images.extend_from_slice(&image);
            }
            self.labels.push(labels[sample.index]);
        }
        let count = self.settings.batch;
        let (size, labels) = ([count, height, width, channels], Input::u8([count], &self.labels));
        Ok(match element {
            Element::Byte => trainer.prefetch([Input::u8(size, &self.images), labels])?,
            Element::Number => trainer.prefetch([Input::f32(size, &run::numbers(&self.images)), labels])?,
        })
    }

    fn backward<B: Backend>(
        &self, trainer: &mut Trainer<B>, batch: Prefetched<2>,
    ) -> Result<Gradients, Error<B::Error>> {
        let divisor = self.settings.pixels.divisor();
        let net = &self.net;
        trainer.backward(batch, |[x, labels]| {
            let options = CrossEntropy { divisor, ..CrossEntropy::default() };
            net.loss(x, labels, &options)
        })
    }

    fn ratio(&self) -> f64 {
        self.settings.pixels.ratio(self.settings.batch)
    }

    /// With running statistics.
    fn evaluate<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>, on: On) -> Result<Metrics, Failure> {
        let test = match (on, &self.data.validation) {
            (On::Validation, Some(validation)) => validation,
            (On::Validation | On::Test, _) => &self.data.test,
        };
        let Classification { height, width, channels, element, ref features, ref labels, .. } = *test;
        let mut confusion = Confusion::new(self.data.classes.len());
        let mut confused = confusion.clone();
        for (i, labels) in labels.chunks(CHUNK).enumerate() {
            let first = i * CHUNK;
            let images = features.range(first..first + labels.len(), test.bytes())?;
            let size = [labels.len(), height, width, channels];
            confusion.add(labels, &run::predict(trainer, &self.net, (size, element), &images)?, None)?;
            if let Built::Towers(towers) = &self.net.net {
                let first = First(&self.net, towers);
                confused.add(labels, &run::predict(trainer, &first, (size, element), &images)?, None)?;
            }
        }
        Ok(match self.net.net {
            Built::Mlp(_) | Built::Resnet(_) => Metrics::of_images(&confusion),
            Built::Towers(_) => Metrics::of_towers(&confused, confusion),
        })
    }

    fn samples<B: Backend<Error: 'static>>(&self, trainer: &mut Trainer<B>) -> Result<Vec<u8>, Failure> {
        let test = &self.data.test;
        let shown: Vec<usize> = samples(test.count, SHOWN).collect();
        let mut images = Vec::new();
        for image in &shown {
            images.extend_from_slice(&test.image(*image)?);
        }
        run::predict(trainer, &self.net, ([shown.len(), test.height, test.width, test.channels], test.element), &images)
    }

    fn position(&self) -> u64 {
        self.order.position()
    }

    fn seek(&mut self, position: u64) {
        self.order = self.order.clone().at(position);
    }

    fn classes(&self) -> Classes {
        let (names, columns) = (self.data.classes.clone(), self.data.columns.clone());
        Classes { names, colours: Vec::new(), values: Vec::new(), input: Some(self.net.input), columns, sound: None }
    }
}
