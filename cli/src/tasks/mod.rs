//! Tasks: a network with its data, its loss and its scores, each in a folder of its own.
//!
//! This file is their registry. A new task is a variant of [`Task`] and a folder with a [`Kind`] and a [`Dataset`]: the
//! compiler asks for all else.

mod classify;
mod detect;
mod generate;
mod inference;
mod language;
mod layers;
mod networks;
mod pixels;
mod predictions;
mod report_samples;
mod run;
mod segnet;
mod speech;
pub mod torch;
mod translate;
mod weights;

pub use classify::Classifier;
pub use detect::colour;
pub use inference::{Apply, Export, Fill, Normal, Trained};
pub use language::Choice;
pub use networks::{ClassifyNet, Net, Network};
pub use pixels::Pixels;
pub use predictions::{Answers, Found, Made, Transcript};
pub use report_samples::{BoxedSample, Exam, Samples, samples};
pub use run::{On, Run};
pub use torch::{Reads, Recognised};

use crate::{
    Failure,
    data::{Column, Languages, Notes, Pieces, Reading, Tokens},
    device::Device,
    optimizer::{Recipe, Rule},
};
use clap::ValueEnum;
use gradscale::{
    Method, PlanRow,
    optim::Optimizer,
    parallel::{BatchStatistics, Exchange, Group, Overlap},
};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::{fmt, path::Path};

/// Kinds of networks with their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// A class for every pixel: `SegNetBasic`, or SegNet in full
    #[default]
    #[value(help = "A class for every pixel: SegNetBasic, or SegNet in full")]
    Segnet,
    /// A class for every image, or row of numbers
    Classify,
    /// Deep Speech 2: letters of recordings.
    Speech,
    /// Sentences of one language to those of another: recurrent networks with attention
    Translate,
    /// The next token of a text
    Language,
    /// Boxes around what is in pictures: SSD-300, SSD-512 or Faster R-CNN
    #[value(help = "Boxes around what is in pictures: SSD-300, SSD-512 or Faster R-CNN")]
    Detect,
    /// DCGAN: images like those that it is shown, made of noise
    Generate,
}

impl Task {
    /// All that there is to it.
    #[must_use]
    pub const fn kind(self) -> &'static dyn Kind {
        match self {
            Self::Segnet => &segnet::Segnet,
            Self::Classify => &classify::Classify,
            Self::Speech => &speech::Speaking,
            Self::Translate => &translate::Translating,
            Self::Language => &language::Language,
            Self::Detect => &detect::Detecting,
            Self::Generate => &generate::Generate,
        }
    }
}

/// What a task is before there are data.
pub trait Kind {
    /// The network, unless told.
    fn net(&self) -> Net;

    /// Images in a batch, unless told.
    fn batch(&self) -> usize;

    /// Learning rate of SGD, unless told.
    fn lr(&self, net: Net) -> f64;

    /// Update rule and its learning rate, unless told, where these are not SGD's.
    fn usual(&self) -> Option<(Rule, f64)> {
        None
    }

    /// The largest norm of gradients, unless told; none is any.
    fn clip(&self, _: Net) -> Option<f64> {
        None
    }

    /// What a comparison divides the loss by, unless told.
    fn divisor(&self) -> Pixels;

    /// What a batch is of.
    fn examples(&self) -> &'static str {
        "images"
    }

    /// What a loss is divided by, and how many of these a batch has whose images have so many pixels.
    fn counted(&self, batch: usize, image: usize) -> (&'static str, usize);

    /// What a network's loss is a mean over, unless told.
    fn mean_over(&self, _: Net) -> &'static str {
        self.counted(1, 1).0
    }

    /// The network in words.
    fn network(&self, network: Network) -> String;

    /// Reads a directory or a file, or makes something up. What is for validation is there only where it is asked for.
    ///
    /// # Errors
    /// A directory that is no such data set.
    fn load(&self, path: Option<&Path>, reading: &Reading, seed: u64) -> Result<Box<dyn Dataset>, Failure>;

    /// What a method makes of the network where it is trained.
    ///
    /// # Errors
    /// No CPU.
    fn layers(&self, network: Network, method: Method) -> Result<Vec<PlanRow>, Failure>;

    /// A trained network on a device, with weights that `fill` puts there.
    ///
    /// # Errors
    /// Those of `fill`, a device that cannot be opened.
    fn apply(&self, trained: Trained<'_>, fill: Fill<'_>) -> Result<Box<dyn Apply>, Failure>;

    /// The network whose layers are called as those of a file of PyTorch's, if it is one of this task.
    fn recognise(&self, file: &SafeTensors<'_>) -> Option<Recognised>;
}

/// Data of a task.
pub trait Dataset: fmt::Debug {
    /// What to call it.
    fn name(&self) -> &str;

    /// What was found.
    fn notes(&self) -> &Notes;

    /// Names of the classes.
    fn classes(&self) -> &[String];

    /// Rows and columns of a training image.
    fn size(&self) -> [usize; 2];

    /// Training and test images.
    fn counts(&self) -> [usize; 2];

    /// Images for scores while a training goes on, if there are such.
    fn validation_count(&self) -> Option<usize>;

    /// What the loss is of: an image, or a pixel.
    fn loss_of(&self) -> &'static str;

    /// That a network of its task can take it.
    ///
    /// # Errors
    /// Data of another kind.
    fn suits(&self, _net: Net) -> Result<(), Failure> {
        Ok(())
    }

    /// The optimizer.
    ///
    /// # Errors
    /// One that does not suit the network or the divisor of the loss.
    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure>;

    /// A training before its first step: see [`open`].
    ///
    /// # Errors
    /// Weights that do not fit, a device that cannot be opened or has too little memory.
    fn open<'a>(&'a self, opening: Opening<'a>) -> Result<Box<dyn Run + 'a>, Failure>;

    /// What the networks are asked on the test images.
    fn exam(&self) -> Exam;

    /// What a report shows of it.
    fn samples(&self) -> Samples;
}

impl dyn Dataset + '_ {
    /// Which images serve for what, in a line, where some are for validation.
    #[must_use]
    pub fn parts(&self) -> Option<String> {
        let ([train, test], validation) = (self.counts(), self.validation_count()?);
        let name = self.name();
        Some(format!(
            "{name}: {train} for training, {validation} for the curves of --eval-every, {test} for the last scores"
        ))
    }

    /// That there are batches of this size, and an optimizer.
    ///
    /// # Errors
    /// More images than there are; those of [`Dataset::optimizer`].
    pub fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let ([count, _], batch) = (self.counts(), settings.batch);
        if batch > count {
            let what = settings.network.net.task().kind().examples();
            let cause = format!("{} has {count} training {what}, and a batch takes each at most once", self.name());
            return Err(Failure::at(format_args!("--batch {batch}"), cause));
        }
        self.optimizer(settings).map(drop)
    }
}

/// What a run depends on beside data, method and seed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The network.
    pub network: Network,
    /// Images in a batch.
    pub batch: usize,
    /// Divisor of the loss.
    pub pixels: Pixels,
    /// How weights are updated.
    pub recipe: Recipe,
}

/// What a training is begun with.
#[derive(Clone, Debug)]
pub struct Opening<'a> {
    /// Where it runs.
    pub device: Device,
    /// Threads of the CPU; 0: one for each core.
    pub threads: usize,
    /// What it depends on.
    pub settings: Settings,
    /// Precision and scaling.
    pub method: Method,
    /// Decides first weights, order and flips.
    pub seed: u64,
    /// First weights, from a checkpoint or a PyTorch model.
    pub weights: Option<&'a Path>,
    /// Whether first weights are moved by 2^-20 of their size, for a measure of chaos.
    pub perturbed: bool,
    /// Into how many parts a step is cut, each with a batch of these settings; none for whole steps.
    pub parts: Option<u32>,
    /// Who trains.
    pub together: Together,
}

/// Who trains together, and how.
#[derive(Clone, Debug)]
pub struct Together {
    /// The ranks.
    pub group: Group,
    /// How their gradients are added; none for what is measured to be faster.
    pub exchange: Option<Exchange>,
    /// When they travel.
    pub overlap: Overlap,
    /// Whether the optimizer is divided among them.
    pub sharded: bool,
    /// Of which batch batch norm takes mean and variance.
    pub batch_statistics: BatchStatistics,
}

impl Together {
    /// One rank.
    #[must_use]
    pub const fn alone() -> Self {
        let (exchange, batch_statistics) = (Some(Exchange::Exact), BatchStatistics::Rank);
        Self { group: Group::alone(), exchange, overlap: Overlap::Off, sharded: false, batch_statistics }
    }
}

/// What is predicted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    pub input: Option<ImageInput>,
    /// What its values are, if they are no pixels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// What a network for recordings hears; its classes are letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundInput>,
    /// What a network for translation reads and writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentences: Option<Sentences>,
    /// What a network for text reads; its classes are tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextInput>,
}

/// Sentences for a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sentences {
    /// Of the source, and of the target.
    pub languages: Languages,
    /// What their words are taken apart into.
    pub pieces: [Pieces; 2],
}

/// Text for a network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextInput {
    /// What tokens are.
    pub tokens: Tokens,
    /// How many it reads at a time.
    pub window: usize,
}

/// Recordings for a network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoundInput {
    /// Samples in a second.
    pub rate: u32,
    /// Frequencies of a spectrum.
    pub frequencies: usize,
}

/// Images for a network with one class for each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageInput {
    /// Rows, columns, channels.
    pub size: [usize; 3],
    /// Of all values of the training images.
    pub mean: f32,
    /// Their standard deviation.
    pub deviation: f32,
    /// The same of each channel, where these are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<[[f32; 3]; 2]>,
}

impl ImageInput {
    /// With one mean and deviation for all channels.
    #[must_use]
    pub const fn new(size: [usize; 3], [mean, deviation]: [f32; 2]) -> Self {
        Self { size, mean, deviation, channels: None }
    }
}

/// Opens a training on a device: a network with first weights by the seed, or from a file.
///
/// # Errors
/// A batch larger than the training set, weights that do not fit, a device that cannot be opened or has too little
/// memory.
pub fn open<'a>(data: &'a dyn Dataset, opening: Opening<'a>) -> Result<Box<dyn Run + 'a>, Failure> {
    data.check(&opening.settings)?;
    data.open(opening)
}
