//! Tasks: a network with its data, its loss and its scores, each in a folder of its own. The default optimizer and
//! learning rate of a task are in its [`TaskSpec::default_optimizer`].
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
pub use run::{On, SampleTest, TrainingRun, UnusableSamples};
pub use speech::Convolutions;
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
    /// Transcription of recordings: Deep Speech 2.
    Speech,
    /// Translation of sentences: recurrent networks with attention
    Translate,
    /// Prediction of the next token of a text
    Language,
    /// Boxes around the objects in images: SSD-300, SSD-512 or Faster R-CNN
    #[value(help = "Boxes around the objects in images: SSD-300, SSD-512 or Faster R-CNN")]
    Detect,
    /// Generation of images like the training images from noise: DCGAN
    Generate,
}

impl Task {
    /// Returns the specification of the task, by which the program treats all alike.
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

/// Trait of a task: its defaults and constructors, independent of data.
pub trait TaskSpec {
    /// Returns the default network of the task.
    fn net(&self) -> Net;

    /// Returns the default batch size of the task, in samples.
    fn batch(&self) -> usize;

    /// Returns the default learning rate of SGD for a network.
    fn lr(&self, net: Net) -> f64;

    /// Returns the default optimizer and its learning rate, or `None` if that is SGD.
    fn default_optimizer(&self) -> Option<(Rule, f64)> {
        None
    }

    /// Returns the default maximum gradient norm, or `None` without clipping.
    fn clip(&self, _: Net) -> Option<f64> {
        None
    }

    /// Returns the default divisor of the loss in a comparison.
    fn divisor(&self) -> LossDivisor;

    /// Returns the plural noun for the samples of a batch.
    fn sample_noun(&self) -> &'static str {
        "images"
    }

    /// Returns the noun for the units that a loss is divided by, and their number in a batch. `image` is the pixels of
    /// one image.
    fn loss_denominator(&self, batch: usize, image: usize) -> (&'static str, usize);

    /// Returns the noun for the units that a network's loss is a mean over.
    fn loss_unit(&self, _: Net) -> &'static str {
        self.loss_denominator(1, 1).0
    }

    /// Describes a network of this task in a phrase, for reports.
    fn network(&self, network: Network) -> String;

    /// Reads a directory or a file, or generates synthetic data. Validation data are split off only on request.
    ///
    /// # Errors
    /// A directory that is no such data set.
    fn load(&self, path: Option<&Path>, reading: &DataOptions, seed: u64) -> Result<Box<dyn Dataset>, Failure>;

    /// Returns the precision plan of the network under a method, one row a layer.
    ///
    /// # Errors
    /// No CPU.
    fn layers(&self, network: Network, method: Method) -> Result<Vec<PlanRow>, Failure>;

    /// Returns true if a network can train on images of this many rows, columns and channels.
    ///
    /// # Errors
    /// No CPU.
    fn takes_size(&self, _network: Network, _image: [usize; 3]) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Opens a trained network on a device, with weights from `fill`.
    ///
    /// # Errors
    /// Those of `fill`, a device that cannot be opened.
    fn apply(&self, trained: CheckpointInfo<'_>, fill: WeightLoader<'_>) -> Result<Box<dyn InferenceModel>, Failure>;

    /// Returns the network of this task whose layers have the names of a PyTorch file.
    fn recognise(&self, file: &SafeTensors<'_>) -> Option<DetectedNetwork>;
}

/// Trait of a data set of a task.
pub trait Dataset: fmt::Debug + Sync {
    /// Returns the name of the data set for messages.
    fn name(&self) -> &str;

    /// Returns notes about loaded and skipped files.
    fn notes(&self) -> &LoadNotes;

    /// Returns the names of the classes, in the order of their ids.
    fn classes(&self) -> &[String];

    /// Returns the rows and columns of a training image, in pixels.
    fn size(&self) -> [usize; 2];

    /// Returns the number of values of a pixel.
    fn channels(&self) -> usize {
        3
    }

    /// Returns the numbers of training and test samples.
    fn counts(&self) -> [usize; 2];

    /// Returns the number of validation samples, if there are any.
    fn validation_count(&self) -> Option<usize>;

    /// Returns the noun for the unit of the loss: image or pixel.
    fn loss_of(&self) -> &'static str;

    /// Checks that a network can read these data.
    ///
    /// # Errors
    /// Data of another kind.
    fn check_network(&self, _net: Net) -> Result<(), Failure> {
        Ok(())
    }

    /// Creates the optimizer of a training on the data.
    ///
    /// # Errors
    /// One that does not suit the network or the divisor of the loss.
    fn optimizer(&self, settings: &Settings) -> Result<Optimizer, Failure>;

    /// Opens a training before its first step: see [`open`].
    ///
    /// # Errors
    /// Weights that do not fit, a device that cannot be opened or has too little memory.
    fn open<'a>(&'a self, opening: TrainingConfig<'a>) -> Result<Box<dyn TrainingRun + 'a>, Failure>;

    /// Returns the score of a constant answer on the test data, which a network must beat.
    fn baseline(&self) -> EvaluationBaseline;

    /// Returns the samples that a report shows.
    fn samples(&self) -> Samples;
}

impl dyn Dataset + '_ {
    /// Describes the split in a line, where there are validation data.
    #[must_use]
    pub fn parts(&self) -> Option<String> {
        let ([train, test], validation) = (self.counts(), self.validation_count()?);
        let name = self.name();
        Some(format!("{name}: {train} for training, {validation} for --eval-every, {test} for the final evaluation"))
    }

    /// Checks that the batch size fits and that the optimizer can be created.
    ///
    /// # Errors
    /// More images than there are; those of [`Dataset::optimizer`].
    pub fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let ([count, _], batch) = (self.counts(), settings.batch);
        if batch > count {
            let what = settings.network.net.task().kind().sample_noun();
            let cause = format!("{} has only {count} training {what}; choose at most that", self.name());
            return Err(Failure::at(format_args!("--batch {batch}"), cause));
        }
        self.check_size(settings.network)?;
        self.optimizer(settings).map(drop)
    }

    /// Checks that the images are large enough for the network.
    ///
    /// # Errors
    /// Images that are too small, by the first file and with the least size.
    fn check_size(&self, network: Network) -> Result<(), Failure> {
        /// Rows and columns from which on every network works: the largest minimum, of Inception v3, is 75.
        const SAFE_SIDE: usize = 128;
        /// Channels of the network that is recorded: sizes of images do not depend on them.
        const CHANNELS: usize = 1;
        let (kind, [height, width]) = (network.net.task().kind(), self.size());
        if height.min(width) >= SAFE_SIDE {
            return Ok(());
        }
        let network = Network { width: CHANNELS, ..network };
        if kind.takes_size(network, [height, width, self.channels()])? {
            return Ok(());
        }
        let takes = |side: usize| kind.takes_size(network, [side, side, self.channels()]);
        let mut sides = (height.min(width) + 1..=SAFE_SIDE).map(|side| takes(side).map(|takes| (side, takes)));
        let least = sides.find_map(|side| side.map(|(side, takes)| takes.then_some(side)).transpose()).transpose()?;
        let first = self.notes().first.as_ref();
        let place = first.map_or_else(|| self.name().to_owned(), |path| path.display().to_string());
        let least = least.unwrap_or(SAFE_SIDE);
        let cause = format!(
            "{height} × {width} (rows × columns) is too small for {}, which takes images of at least {least} × {least}",
            network.net
        );
        let hint = match first {
            Some(_) => format!("--size {least}x{least} enlarges images that are PNG or JPEG files"),
            None => "made-up images have one size; --data reads yours".to_owned(),
        };
        Err(Failure::at(place, cause).hint(&hint))
    }
}

/// Settings of a training besides data, method and seed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Network to train, with its size.
    pub network: Network,
    /// Batch size, in images or other samples.
    pub batch: usize,
    /// Divisor of the summed losses of a batch.
    pub pixels: LossDivisor,
    /// Update rule and learning-rate schedule of the optimizer.
    pub recipe: Recipe,
}

/// Arguments with which a training is created.
#[derive(Clone, Debug)]
pub struct TrainingConfig<'a> {
    /// Device on which the training runs.
    pub device: Device,
    /// Number of threads of the CPU; 0: one for each core.
    pub threads: usize,
    /// Network, batch size, divisor of the loss, optimizer.
    pub settings: Settings,
    /// Method of precision and scaling, for example `gs`.
    pub method: Method,
    /// Seed of first weights, order and flips.
    pub seed: u64,
    /// Path of the first weights: a checkpoint or a PyTorch model.
    pub weights: Option<&'a Path>,
    /// True if the initial weights are perturbed by a factor 2^-20, to measure chaos.
    pub perturbed: bool,
    /// Number of micro-batches in a step. `None` runs whole batches.
    pub parts: Option<u32>,
    /// Options about the ranks that train together.
    pub together: DistributedOptions,
}

/// Options of data-parallel training over several ranks.
#[derive(Clone, Debug)]
pub struct DistributedOptions {
    /// Group of the ranks that train together.
    pub group: Group,
    /// Reduce mode of gradients. `None` measures the modes and takes the fastest.
    pub exchange: Option<ReduceMode>,
    /// Overlap of gradient communication with the backward pass.
    pub overlap: Overlap,
    /// True if the optimizer state is sharded over the ranks (`ZeRO` stage 1).
    pub sharded: bool,
    /// Scope of batch norm's mean and variance: one rank or all.
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
    /// Names of the classes; the id of a class is its position.
    pub names: Vec<String>,
    /// Colours of the classes, R G B, if pixels have classes.
    pub colours: Vec<[u8; 3]>,
    /// Grey values of the classes in label files; empty where that is the id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<u8>,
    /// Format of the image input, if the network takes only one size.
    #[serde(default)]
    pub input: Option<ImageInput>,
    /// Columns of tabular input; empty for images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// Format of a speech network's input; its classes are letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<SoundInput>,
    /// Languages and vocabularies of a translation network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sentences: Option<Sentences>,
    /// Format of a language model's input; its classes are tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<TextInput>,
}

/// Format of sentences that a translation network reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sentences {
    /// Source and target language of the translation.
    pub languages: Languages,
    /// Byte-pair vocabularies of the source and the target language.
    pub pieces: [Pieces; 2],
}

/// Format of text that a language model reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextInput {
    /// Kind of tokens that texts are split into.
    pub tokens: Tokens,
    /// Number of tokens that the model reads at once.
    pub window: usize,
}

/// Format of recordings that a speech network reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoundInput {
    /// Sampling rate of recordings in samples per second.
    pub rate: u32,
    /// Number of frequency bins of a spectrum.
    pub frequencies: usize,
}

/// Format of images for a network that predicts one class for each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImageInput {
    /// Number of rows, columns and channels of an image that the network reads.
    pub size: [usize; 3],
    /// Mean of all values of the training images.
    pub mean: f32,
    /// Standard deviation of the values, by which they are divided.
    pub deviation: f32,
    /// Mean and standard deviation of each channel, if known.
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
