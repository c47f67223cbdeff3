//! Networks with their data: what is trained, and how well it does.

mod apply;
pub mod classify;
mod layers;
mod pixels;
mod run;
pub mod segnet;
pub mod torch;
pub mod towers;
mod weights;

pub use apply::{Apply, Normal, apply};
pub use classify::{Classifier, Net};
pub use layers::rows;
pub use pixels::Pixels;
pub use run::{On, Run};

use crate::{
    Failure,
    data::{Column, Labelled, Notes, Reading, Segmentation},
    device::{Device, Work},
    optimizer::Recipe,
};
use clap::ValueEnum;
use gradscale::{Method, core::backend::Backend, optim::Optimizer};
use run::Training;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Kinds of networks with their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// SegNetBasic: a class for every pixel.
    #[default]
    Segnet,
    /// A class for every image: a perceptron, a residual network, or two towers.
    Classify,
}

impl Task {
    /// Images in a batch, unless told.
    #[must_use]
    pub const fn batch(self) -> usize {
        match self {
            Self::Segnet => 8,
            Self::Classify => 64,
        }
    }

    /// Learning rate of SGD, unless told.
    #[must_use]
    pub const fn lr(self, net: Net) -> f64 {
        match self {
            Self::Segnet => segnet::LR,
            Self::Classify => net.lr(),
        }
    }
}

/// What a run depends on beside data, method and seed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The network of [`Task::Classify`].
    pub net: Net,
    /// Images in a batch.
    pub batch: usize,
    /// Channels.
    pub width: usize,
    /// Divisor of the loss.
    pub pixels: Pixels,
    /// How weights are updated.
    pub recipe: Recipe,
}

/// A data set.
#[derive(Debug)]
pub enum Data {
    /// With a class for every pixel.
    Segmentation(Segmentation),
    /// With a class for every image.
    Labelled(Labelled),
}

/// What is predicted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Classes {
    /// Names; ids are positions.
    pub names: Vec<String>,
    /// A colour of each, R G B, where pixels have classes.
    pub colours: Vec<[u8; 3]>,
    /// The grey value of each in label files; none where that is its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<u8>,
    /// What a network takes, if it takes only one size.
    #[serde(default)]
    pub input: Option<Input>,
    /// What its values are, if they are no pixels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
}

/// Images for a network with one class for each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Rows, columns, channels.
    pub size: [usize; 3],
    /// Of all values of the training images.
    pub mean: f32,
    /// Their standard deviation.
    pub deviation: f32,
}

impl Data {
    /// Reads a directory or a file, or makes something up.
    ///
    /// # Errors
    /// A directory that is no such data set.
    pub fn load(task: Task, path: Option<&Path>, reading: &Reading, seed: u64) -> Result<Self, Failure> {
        let mut data = match (task, path) {
            (Task::Segnet, Some(path)) => Self::Segmentation(Segmentation::load(path, reading)?),
            (Task::Segnet, None) => Self::Segmentation(Segmentation::synthetic(seed)),
            (Task::Classify, Some(path)) => Self::Labelled(Labelled::load(path, reading)?),
            (Task::Classify, None) => Self::Labelled(Labelled::synthetic(seed)),
        };
        if !reading.validation {
            match &mut data {
                Self::Segmentation(data) => data.validation = None,
                Self::Labelled(data) => data.validation = None,
            }
        }
        Ok(data)
    }

    /// Images for scores while a training goes on, if there are such.
    #[must_use]
    pub fn validation_count(&self) -> Option<usize> {
        match self {
            Self::Segmentation(data) => data.validation.as_ref().map(|part| part.count),
            Self::Labelled(data) => data.validation.as_ref().map(|part| part.count),
        }
    }

    /// What was found.
    #[must_use]
    pub const fn notes(&self) -> &Notes {
        match self {
            Self::Segmentation(data) => &data.notes,
            Self::Labelled(data) => &data.notes,
        }
    }

    /// That a network can take it.
    ///
    /// # Errors
    /// Rows of numbers for a network for images.
    pub fn suits(&self, net: Net) -> Result<(), Failure> {
        match (self, net) {
            (Self::Labelled(data), Net::Resnet) if !data.columns.is_empty() => Err(Failure::at(
                "--net",
                format!("{} has rows of numbers, which are for mlp, not for resnet", data.name),
            )),
            _ => Ok(()),
        }
    }

    /// What to call it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Segmentation(data) => &data.name,
            Self::Labelled(data) => &data.name,
        }
    }

    /// Rows and columns of a training image.
    #[must_use]
    pub const fn size(&self) -> [usize; 2] {
        match self {
            Self::Segmentation(data) => [data.train.height, data.train.width],
            Self::Labelled(data) => [data.train.height, data.train.width],
        }
    }

    /// Training and test images.
    #[must_use]
    pub const fn counts(&self) -> [usize; 2] {
        match self {
            Self::Segmentation(data) => [data.train.count, data.test.count],
            Self::Labelled(data) => [data.train.count, data.test.count],
        }
    }

    /// Which images serve for what, in a line, where some are for validation.
    #[must_use]
    pub fn parts(&self) -> Option<String> {
        let ([train, test], validation) = (self.counts(), self.validation_count()?);
        let name = self.name();
        Some(format!(
            "{name}: {train} for training, {validation} for the curves of --eval-every, {test} for the last scores"
        ))
    }

    /// Names of the classes.
    #[must_use]
    pub fn classes(&self) -> &[String] {
        match self {
            Self::Segmentation(data) => &data.classes,
            Self::Labelled(data) => &data.classes,
        }
    }

    /// That there are batches of this size, and an optimizer.
    ///
    /// # Errors
    /// More images than there are; those of [`Data::optimizer`].
    pub fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let ([count, _], batch) = (self.counts(), settings.batch);
        if batch > count {
            let cause = format!("{} has {count} training images, and a batch takes each at most once", self.name());
            return Err(Failure::at(format_args!("--batch {batch}"), cause));
        }
        self.optimizer(settings).map(drop)
    }

    /// The optimizer.
    ///
    /// # Errors
    /// One that does not suit the network or the divisor of the loss.
    pub fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure> {
        match self {
            Self::Segmentation(data) => segnet::optimizer(settings, data),
            Self::Labelled(_) => classify::optimizer(settings),
        }
    }
}

/// Test images that a report shows: so many, spread over all.
pub fn samples(count: usize, most: usize) -> impl Iterator<Item = usize> {
    let shown = count.min(most);
    (0..shown).map(move |i| (2 * i + 1) * count / (2 * shown))
}

/// Opens a training on a device: a network with first weights by `seed`, or from a PyTorch model's file.
///
/// # Errors
/// A batch larger than the training set, weights that do not fit, a device that cannot be opened or has too little
/// memory.
pub fn open<'a>(
    (device, threads): (Device, usize), data: &'a Data, settings: Settings, method: &Method, seed: u64,
    weights: Option<&'a Path>,
) -> Result<Box<dyn Run + 'a>, Failure> {
    data.check(&settings)?;
    device.open(threads, Opening { data, settings, method: method.clone(), seed, weights })
}

struct Opening<'a> {
    data: &'a Data,
    settings: Settings,
    method: Method,
    seed: u64,
    weights: Option<&'a Path>,
}

impl<'a> Work for Opening<'a> {
    type Output = Box<dyn Run + 'a>;

    fn on<B: Backend<Error: 'static> + 'static>(self, device: B) -> Result<Self::Output, Failure> {
        let Self { data, settings, method, seed, weights } = self;
        Ok(match data {
            Data::Segmentation(data) => {
                let (task, mut parameters, optimizer) = segnet::Segnet::new(data, settings, seed)?;
                weights::import(&mut parameters, weights, None)?;
                Box::new(Training::new(device, task, parameters, optimizer, method)?)
            }
            Data::Labelled(data) => {
                let (task, mut parameters, optimizer) = classify::Classify::new(data, settings, seed)?;
                let size = [data.train.height, data.train.width, data.train.channels];
                weights::import(&mut parameters, weights, Some(size))?;
                Box::new(Training::new(device, task, parameters, optimizer, method)?)
            }
        })
    }
}
