//! Tasks: a network with its data, its loss and its scores, each in a folder of its own.
//!
//! This file is their registry. A new task is a variant of [`Task`] and a folder with a [`TaskSpec`] and a [`Dataset`]: the
//! compiler asks for all else.

mod classify;
mod detect;
mod generate;
mod inference;
mod language;
mod layers;
mod loss_divisor;
mod networks;
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
pub use inference::{CheckpointInfo, Export, InferenceModel, InputNormalization, WeightLoader};
pub use language::Choice;
pub use loss_divisor::LossDivisor;
pub use networks::{ClassifyNet, Net, Network};
pub use predictions::{DetectedBox, GeneratedImages, Predictions, Transcript};
pub use report_samples::{BoxedSample, EvaluationBaseline, Samples, samples};
pub use run::{On, TrainingRun};
pub use torch::{DetectedNetwork, InputSpec};

use crate::{
    Failure,
    data::{Column, DataOptions, Languages, LoadNotes, Pieces, Tokens},
    device::Device,
    optimizer::{Recipe, Rule},
};
use clap::ValueEnum;
use gradscale::{
    Method, PlanRow,
    distributed::{BatchNormScope, Group, Overlap, ReduceMode},
    optim::Optimizer,
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
    /// Returns the specification of the task.
    #[must_use]
    pub const fn kind(self) -> &'static dyn TaskSpec {
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

/// Defaults and constructors of a task, independent of its data.
pub trait TaskSpec {
    /// Default network.
    fn net(&self) -> Net;

    /// Default batch size, in samples.
    fn batch(&self) -> usize;

    /// Default learning rate of SGD.
    fn lr(&self, net: Net) -> f64;

    /// Default optimizer and its learning rate, where the default is not SGD.
    fn default_optimizer(&self) -> Option<(Rule, f64)> {
        None
    }

    /// Default maximum gradient norm. `None` does not clip.
    fn clip(&self, _: Net) -> Option<f64> {
        None
    }

    /// Default divisor of the loss in a comparison.
    fn divisor(&self) -> LossDivisor;

    /// Plural noun for the samples of a batch.
    fn sample_noun(&self) -> &'static str {
        "images"
    }

    /// Noun for the units that a loss is divided by, and their number in a batch. `image` is the pixels of one image.
    fn loss_denominator(&self, batch: usize, image: usize) -> (&'static str, usize);

    /// Noun for the units that a network's loss is a mean over.
    fn loss_unit(&self, _: Net) -> &'static str {
        self.loss_denominator(1, 1).0
    }

    /// Describes the network in a phrase.
    fn network(&self, network: Network) -> String;

    /// Reads a directory or a file, or generates synthetic data. Validation data are split off only on request.
    ///
    /// # Errors
    /// A directory that is no such data set.
    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure>;

    /// Precision plan of the network under a method, one row a layer.
    ///
    /// # Errors
    /// No CPU.
    fn layers(&self, network: Network, method: Method) -> Result<Vec<PlanRow>, Failure>;

    /// Opens a trained network on a device, with weights from `fill`.
    ///
    /// # Errors
    /// Those of `fill`, a device that cannot be opened.
    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure>;

    /// Returns the network of this task whose layers have the names of a PyTorch file.
    fn recognise(&self, file: &SafeTensors<'_>) -> Option<DetectedNetwork>;
}

/// Data set of a task.
pub trait Dataset: fmt::Debug {
    /// Name for messages.
    fn name(&self) -> &str;

    /// Returns notes about loaded and skipped files.
    fn notes(&self) -> &LoadNotes;

    /// Names of the classes.
    fn classes(&self) -> &[String];

    /// Rows and columns of a training image, in pixels.
    fn size(&self) -> [usize; 2];

    /// Number of training and test samples.
    fn counts(&self) -> [usize; 2];

    /// Number of validation samples, if there are some.
    fn validation_count(&self) -> Option<usize>;

    /// Noun for the unit of the loss: image or pixel.
    fn loss_of(&self) -> &'static str;

    /// Checks that a network can read these data.
    ///
    /// # Errors
    /// Data of another kind.
    fn check_network(&self, _net: Net) -> Result<(), Failure> {
        Ok(())
    }

    /// Creates the optimizer.
    ///
    /// # Errors
    /// One that does not suit the network or the divisor of the loss.
    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure>;

    /// Opens a training before its first step: see [`open`].
    ///
    /// # Errors
    /// Weights that do not fit, a device that cannot be opened or has too little memory.
    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure>;

    /// Score of a constant answer on the test data, which a network must beat.
    fn baseline(&self) -> EvaluationBaseline;

    /// Samples that a report shows.
    fn samples(&self) -> Samples;
}

impl dyn Dataset + '_ {
    /// Describes the split in a line, where there are validation data.
    #[must_use]
    pub fn parts(&self) -> Option<String> {
        let ([train, test], validation) = (self.counts(), self.validation_count()?);
        let name = self.name();
        Some(format!(
            "{name}: {train} for training, {validation} for the curves of --eval-every, {test} for the last scores"
        ))
    }

    /// Checks that the batch size fits and that the optimizer can be created.
    ///
    /// # Errors
    /// More images than there are; those of [`Dataset::optimizer`].
    pub fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let ([count, _], batch) = (self.counts(), settings.batch);
        if batch > count {
            let what = settings.network.net.task().kind().sample_noun();
            let cause = format!("{} has {count} training {what}, and a batch takes each at most once", self.name());
            return Err(Failure::at(format_args!("--batch {batch}"), cause));
        }
        self.optimizer(settings).map(drop)
    }
}

/// Settings of a run besides data, method and seed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The network.
    pub network: Network,
    /// Images in a batch.
    pub batch: usize,
    /// Divisor of the loss.
    pub pixels: LossDivisor,
    /// Optimizer settings.
    pub recipe: Recipe,
}

/// Arguments that open a training.
#[derive(Clone, Debug)]
pub struct TrainingConfig<'a> {
    /// Device.
    pub device: Device,
    /// Threads of the CPU; 0: one for each core.
    pub threads: usize,
    /// Network, batch size, divisor of the loss, optimizer.
    pub settings: Settings,
    /// Precision and scaling.
    pub method: Method,
    /// Seed of first weights, order and flips.
    pub seed: u64,
    /// First weights, from a checkpoint or a PyTorch model.
    pub weights: Option<&'a Path>,
    /// Perturb the initial weights by a factor 2^-20, to measure chaos.
    pub perturbed: bool,
    /// Number of micro-batches in a step. `None` runs whole batches.
    pub parts: Option<u32>,
    /// Ranks that train together.
    pub together: DistributedOptions,
}

/// Options of data-parallel training.
#[derive(Clone, Debug)]
pub struct DistributedOptions {
    /// The ranks.
    pub group: Group,
    /// Reduce mode of gradients. `None` measures the modes and takes the fastest.
    pub exchange: Option<ReduceMode>,
    /// Overlap of communication and backward pass.
    pub overlap: Overlap,
    /// Shard the optimizer state over the ranks (`ZeRO` stage 1).
    pub sharded: bool,
    /// Batch over which batch norm computes mean and variance.
    pub batch_statistics: BatchNormScope,
}

impl DistributedOptions {
    /// Returns the options of a single rank.
    #[must_use]
    pub const fn alone() -> Self {
        let (exchange, batch_statistics) = (Some(ReduceMode::ExactF16), BatchNormScope::Rank);
        Self { group: Group::single_rank(), exchange, overlap: Overlap::Off, sharded: false, batch_statistics }
    }
}

/// Classes and input format of a network, stored in its checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Classes {
    /// Names; ids are positions.
    pub names: Vec<String>,
    /// A colour of each, R G B, where pixels have classes.
    pub colours: Vec<[u8; 3]>,
    /// The grey value of each in label files; none where that is its id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<u8>,
    /// Image input, if the network takes only one size.
    #[serde(default)]
    pub input: Option<ImageInput>,
    /// Columns of tabular input; empty for images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// Input of a speech network, whose classes are letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundInput>,
    /// Languages and vocabularies of a translation network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentences: Option<Sentences>,
    /// Input of a language model, whose classes are tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextInput>,
}

/// Sentences for a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sentences {
    /// Source and target language.
    pub languages: Languages,
    /// Byte-pair vocabularies of source and target.
    pub pieces: [Pieces; 2],
}

/// Text for a network.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextInput {
    /// Kind of tokens.
    pub tokens: Tokens,
    /// Tokens of a window.
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
    /// Mean of all values of the training images.
    pub mean: f32,
    /// Their standard deviation.
    pub deviation: f32,
    /// Mean and deviation of each channel, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<[[f32; 3]; 2]>,
}

impl ImageInput {
    /// Creates an input with one mean and deviation for all channels.
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
pub fn open<'a>(data: &'a dyn Dataset, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure> {
    data.check(&opening.settings)?;
    data.open(opening)
}
