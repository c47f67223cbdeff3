//! Classification of small images: a multilayer perceptron, a small residual network, or two towers.

use super::{
    Classes, Input, On, Settings, run, samples,
    towers::{self, Towers},
};
use crate::{
    Failure,
    data::{Classification, Element, Labelled, Order, Sample},
    metrics::{Confusion, Metrics},
};
use clap::ValueEnum;
use gradscale::{
    Batch, CrossEntropy, Error, Gradients, Parameters, Prefetched, Trainer, Var,
    core::backend::Backend,
    models::{Mlp, ResNet},
    nn::Module,
    optim::Optimizer,
};
use serde::{Deserialize, Serialize};

/// Learning rate.
const LR: f64 = 0.05;
/// Images of one evaluation.
const CHUNK: usize = 500;
/// Images that a report shows.
pub const SHOWN: usize = 12;

/// Networks for images with one class each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// A perceptron: two hidden layers of 8 · width units.
    Mlp,
    /// ResNet-8: three residual blocks of width, 2 · width and 4 · width channels.
    #[default]
    Resnet,
    /// Two towers of 8 · width units on one trunk, each telling the classes; the second's loss counts 2^-46 of the
    /// first's. Only what scales every gradient by itself trains both in FP16.
    Towers,
}

/// A network of either kind, for bytes: `[n, h, w, channels]` to `[n, classes]`.
#[derive(Debug)]
pub struct Classifier {
    input: Input,
    net: Built,
}

#[derive(Debug)]
enum Built {
    Mlp(Mlp),
    Resnet(Box<ResNet>),
    Towers(Box<Towers>),
}

impl Classifier {
    fn normalised<'t>(&self, x: Var<'t>) -> Var<'t> {
        let Input { mean, deviation, .. } = self.input;
        x.affine(1.0 / deviation, -mean / deviation)
    }

    /// What training minimises.
    ///
    /// # Errors
    /// Images of another size, labels in another number.
    pub fn loss<'t>(&self, x: Var<'t>, labels: Var<'t>, options: &CrossEntropy<'t>) -> Var<'t> {
        match &self.net {
            Built::Towers(towers) => towers.loss(self.normalised(x).flatten(), labels, options),
            Built::Mlp(_) | Built::Resnet(_) => self.forward(x).cross_entropy_with(labels, options),
        }
    }
}

/// Of two towers, what the second says: the one that is hard to train.
impl Module for Classifier {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        let x = self.normalised(x);
        match &self.net {
            Built::Mlp(mlp) => mlp.forward(x.flatten()),
            Built::Resnet(resnet) => resnet.forward(x),
            Built::Towers(towers) => towers.tower(x.flatten(), true),
        }
    }
}

/// What the first of two towers says.
struct First<'a>(&'a Classifier, &'a Towers);

impl Module for First<'_> {
    fn forward<'t>(&self, x: Var<'t>) -> Var<'t> {
        self.1.tower(self.0.normalised(x).flatten(), false)
    }
}

/// A network with its parameters, first values by `seed`.
#[must_use]
pub fn network(seed: u64, net: Net, input: Input, width: usize, classes: usize) -> (Parameters, Classifier) {
    let mut parameters = Parameters::seeded(seed);
    let ([height, columns, channels], hidden) = (input.size, 8 * width);
    let net = match net {
        Net::Mlp => {
            let sizes = [height * columns * channels, hidden, hidden, classes];
            Built::Mlp(Mlp::new(&mut parameters.at("mlp"), &sizes))
        }
        Net::Resnet => {
            let mut scope = parameters.at("resnet");
            Built::Resnet(Box::new(ResNet::new(&mut scope, channels, width, 1, classes)))
        }
        Net::Towers => {
            let values = height * columns * channels;
            Built::Towers(Box::new(Towers::new(&mut parameters.at("towers"), values, hidden, classes)))
        }
    };
    (parameters, Classifier { input, net })
}

impl Net {
    /// Learning rate of SGD, unless told.
    #[must_use]
    pub const fn lr(self) -> f64 {
        match self {
            Self::Mlp | Self::Resnet => LR,
            Self::Towers => towers::LR,
        }
    }
}

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
pub(super) struct Classify<'a> {
    data: &'a Labelled,
    settings: Settings,
    net: Classifier,
    order: Order,
    images: Vec<u8>,
    labels: Vec<u8>,
}

impl<'a> Classify<'a> {
    pub fn new(data: &'a Labelled, settings: Settings, seed: u64) -> Result<(Self, Parameters, Optimizer), Failure> {
        let size = [data.train.height, data.train.width, data.train.channels];
        let input = Input { size, mean: data.mean, deviation: data.deviation };
        let (parameters, net) = network(seed, settings.net, input, settings.width, data.classes.len());
        let order = Order::new(data.train.count, seed);
        let optimizer = optimizer(&settings)?;
        let task = Self { data, settings, net, order, images: Vec::new(), labels: Vec::new() };
        Ok((task, parameters, optimizer))
    }
}

impl run::Task for Classify<'_> {
    fn net(&self) -> &impl Module {
        &self.net
    }

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
        let (size, labels) = ([count, height, width, channels], Batch::u8([count], &self.labels));
        Ok(match element {
            Element::Byte => trainer.prefetch([Batch::u8(size, &self.images), labels])?,
            Element::Number => trainer.prefetch([Batch::f32(size, &run::numbers(&self.images)), labels])?,
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

    fn shown(&self) -> Result<run::Shown, Failure> {
        let test = &self.data.test;
        let shown: Vec<usize> = samples(test.count, SHOWN).collect();
        let mut images = Vec::new();
        for image in &shown {
            images.extend_from_slice(&test.image(*image)?);
        }
        Ok(run::Shown { size: [shown.len(), test.height, test.width, test.channels], element: test.element, images })
    }

    fn position(&self) -> u64 {
        self.order.position()
    }

    fn seek(&mut self, position: u64) {
        self.order = self.order.clone().at(position);
    }

    fn classes(&self) -> Classes {
        let (names, columns) = (self.data.classes.clone(), self.data.columns.clone());
        Classes { names, colours: Vec::new(), values: Vec::new(), input: Some(self.net.input), columns }
    }
}
