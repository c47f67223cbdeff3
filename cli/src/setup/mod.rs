//! Options of several commands: network, data, device, precision, optimizer, methods, seeds.

mod amp;
mod chosen;
mod lists;
mod size;

pub use amp::Amp;
pub use chosen::Chosen;
pub(crate) use lists::NOMINAL_STEPS;
pub use lists::{CHAOS, Methods, Seeds};
pub use size::{NetworkSize, Sizes};

use crate::{
    Failure,
    data::{DataOptions, check_file, is_table},
    data_messages::with_program_options,
    device::Device,
    help::{Completed, devices, heading},
    optimizer::{Recipe, Rule, Updates},
    output,
    tasks::{Dataset, LossDivisor, Net, Network, Settings, Task},
};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Help text of the data argument.
const DATA: &str = "Data. By default small synthetic road scenes, digits, words or sentences.
For segnet, a directory of images with a class for every pixel:
- images/{train,test}/NAME.png|jpg and labels/{train,test}/NAME.png
- {train,test}/images/NAME.png|jpg and {train,test}/labels/NAME.png
- images/ and labels/ without these: every fifth image is held out
  for evaluation, or train.txt and test.txt list the names
- JPEGImages/, SegmentationClass/ and ImageSets/Segmentation/ (VOC)
- train-images-idx4-ubyte[.gz], train-labels-idx3-ubyte[.gz], and
  the same for test
labels may be named masks or annotations, NAME.png NAME_mask.png,
train training, and test testing, val or validation, in capitals
too. If both val and test exist, --eval-every uses val.
classes.tsv (id, name, r, g, b, separated by tabs) lists the classes.
For classify, images with one class each:
- CLASS/*.png|jpg: a folder for each class; every fifth image is
  held out for evaluation
- train/CLASS/*.png|jpg and test/CLASS/*.png|jpg (ImageNet's: train
  and val, with --crop 224 for images of any size)
- images and a CSV file of their names and classes (labels.csv, or
  train.csv and test.csv)
- train-images-idx3-ubyte[.gz], train-labels-idx1-ubyte[.gz], and
  the same for t10k or test (MNIST)
- data_batch_1.bin[.gz] ... and test_batch.bin[.gz] (CIFAR)
or rows of numbers and words with one class, for --network mlp:
- a file NAME.csv, of which every fifth line is held out, or a
  directory with train.csv and test.csv: a header line, then lines
  of numbers or words with a class in one column
For speech, WAV files:
- recordings/*.wav, or *.wav; transcripts.tsv (NAME.wav, a tab, the
  transcript) or names that begin with a digit and _; train.txt and
  test.txt list the names, or every fifth recording is held out
For translate, files of lines in two languages, line by line:
- train.en[.gz] and train.de[.gz], and the same for val and test,
  which may be named test_NAME; or every fifth line is held out
For language, text:
- NAME.txt, or a directory with one such file, whose last 5 % are
  held out for evaluation
- train.txt and test.txt (valid.txt), as in wikitext; valid.txt
  replaces a missing one
For detect, images with boxes; without named parts, every fifth
image is held out:
- Annotations/NAME.xml and JPEGImages/NAME.jpg (PASCAL VOC), in the
  directory or in one folder of it;
  ImageSets/Main/{train,val,trainval,test}.txt list the names
- NAME.xml beside NAME.jpg (labelImg)
- annotations/*train*.json and images, the same for val (COCO)
- images/train/NAME.jpg and labels/train/NAME.txt, the same for val,
  or train/images and train/labels; data.yaml (YOLO)
For generate, images in the layouts of classify, whose classes are
ignored, or in one folder. Images smaller than the network's output are centred and
padded with black.
Images and label images have one channel or three, of 8 or 16 bits.";

/// Network, data and device of a training.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct Setup {
    /// The network.
    #[command(flatten)]
    #[serde(flatten)]
    pub chosen: Chosen,
    /// Directory or file with data; synthetic data by default.
    #[arg(
        long,
        value_name = "PATH",
        help = "Directory or file with data [default: synthetic data]",
        long_help = DATA,
        help_heading = heading::DATA
    )]
    pub data: Option<PathBuf>,
    /// Options for reading data.
    #[command(flatten)]
    #[serde(flatten)]
    pub reading: DataOptions,
    /// Number of samples in a batch
    ///
    /// Samples are images, recordings, sentences or windows [default: 8 for segnet and detect, 64 for classify and
    /// generate, 32 for translate, 16 for speech and language; at most the number of training samples]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = heading::TRAINING)]
    pub batch: Option<usize>,
    /// Optimizer options.
    #[command(flatten)]
    #[serde(flatten)]
    pub updates: Updates,
    /// Mixed precision.
    #[command(flatten)]
    #[serde(flatten)]
    pub amp: Amp,
    /// Device to run on; `gradscale devices` lists them [default: cpu]
    ///
    /// With `cuda`, several ranks on a machine use one GPU each.
    #[arg(long, value_name = "DEVICE", value_parser = Completed::<Device>::new(devices), hide_possible_values = true, help_heading = heading::DEVICE)]
    pub device: Option<Device>,
}

impl Setup {
    /// Returns the task: the kind of network and data.
    #[must_use]
    pub fn task(&self) -> Task {
        self.chosen.task()
    }

    /// Returns the options for reading data, completed by the network's own.
    #[must_use]
    pub fn reading(&self) -> DataOptions {
        let network = self.chosen.network().ok();
        let paper = network.and_then(Network::image);
        let window = self.reading.window.or_else(|| network.and_then(Network::window));
        let crop = self.reading.crop.or_else(|| paper.and_then(|side| u16::try_from(side).ok()));
        DataOptions { size: self.chosen.size.and_then(|size| size.images), crop, window, ..self.reading.clone() }
    }

    /// Returns the settings with network, batch and device filled in, as results and checkpoints store them.
    ///
    /// # Errors
    /// Those of [`Chosen::network`].
    pub fn resolved(&self) -> Result<Self, Failure> {
        let (batch, device) = (Some(self.batch()), Some(self.device()));
        Ok(Self { chosen: self.chosen.resolved()?, batch, device, ..self.clone() })
    }

    /// Returns the number of images in a batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch.unwrap_or_else(|| self.task().kind().batch())
    }

    /// Returns the device to train on, by default the CPU.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device.unwrap_or(Device::Cpu)
    }

    /// Returns the settings with the network that reads the data, if none is chosen and the task's own does not, and a
    /// note about it.
    #[must_use]
    pub fn for_data(&self) -> (Self, Option<String>) {
        let mut setup = self.clone();
        let table = |path: &PathBuf| is_table(path, &self.reading);
        let chosen = self.chosen.net.is_some() || self.task() != Task::Classify;
        if chosen || !self.data.as_ref().is_some_and(table) {
            return (setup, None);
        }
        let usual = self.chosen.net();
        setup.chosen.net = Some(Net::Mlp);
        (setup, Some(format!("rows of numbers: --network {} ({usual} is for images)", Net::Mlp)))
    }

    /// Lowers the default batch size to the number of training samples, rounded down to a multiple of `parts`; returns
    /// a note if it did.
    pub fn fit_batch(&mut self, data: &dyn Dataset, parts: usize) -> Option<String> {
        let ([count, _], usual) = (data.counts(), self.batch());
        let fitting = count - count % parts.max(1);
        if usual <= count || fitting == 0 {
            return None;
        }
        self.batch = Some(fitting);
        let (noun, all) = (self.task().kind().sample_noun(), if fitting == count { "all " } else { "" });
        Some(format!("batch {fitting}: {all}{fitting} training {noun}, as {} has fewer than {usual}", data.name()))
    }

    /// Loads the data, and prints notes about how files were interpreted.
    ///
    /// # Errors
    /// A directory that is no such data set, or not one for the network.
    pub fn load(&self, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        let data = self.load_quietly(seed)?;
        let notes = data.notes();
        let note = |line: &String| Failure::plain(&with_program_options(line));
        notes.left_out_line().iter().for_each(|line| output::warn(&note(line)));
        let warning = |line| Failure::at(format_args!("warning: {}", data.name()), note(line));
        notes.doubts.iter().for_each(|line| output::warn(&warning(line)));
        notes.taken.iter().try_for_each(|line| output::print(&format!("{}\n", note(line))))?;
        Ok(data)
    }

    /// Loads the data without notes, which another rank prints.
    ///
    /// # Errors
    /// Those of [`Setup::load`].
    pub fn load_quietly(&self, seed: u64) -> Result<Box<dyn Dataset>, Failure> {
        let network = self.chosen.network()?;
        if self.task() != Task::Translate {
            let options =
                [("--languages", self.reading.languages.is_some()), ("--pieces", self.reading.pieces.is_some())];
            if let Some((option, _)) = options.into_iter().find(|(_, given)| *given) {
                return Err(Failure::at(option, "is for --task translate"));
            }
        }
        let only = [("--tokens", self.reading.tokens.is_some()), ("--window", self.reading.window.is_some())];
        if let Some((option, _)) = only.into_iter().find(|(_, given)| *given && self.task() != Task::Language) {
            return Err(Failure::at(option, "is for --task language"));
        }
        self.data.as_deref().map_or(Ok(()), check_file)?;
        let data = self.task().kind().load(self.data.as_deref(), &self.reading(), seed)?;
        data.check_network(network.net)?;
        Ok(data)
    }

    /// Returns the optimizer settings of a training of `iters` steps.
    ///
    /// # Errors
    /// A warm-up that is as long.
    pub fn recipe(&self, iters: u64) -> Result<Recipe, Failure> {
        self.recipe_of(&self.updates, iters)
    }

    /// Returns optimizer settings with the task's defaults filled in.
    fn recipe_of(&self, updates: &Updates, iters: u64) -> Result<Recipe, Failure> {
        let (kind, net) = (self.task().kind(), self.chosen.net());
        let recipe = self.with_usual(updates).recipe(kind.lr(net), iters)?;
        Ok(Recipe { clip: recipe.clip.or_else(|| kind.clip(net)), ..recipe })
    }

    /// Returns the updates with the task's default rule if none was given.
    fn with_usual(&self, updates: &Updates) -> Updates {
        match (updates.optimizer, self.task().kind().default_optimizer()) {
            (None, Some((rule, lr))) => {
                Updates { optimizer: Some(rule), lr: updates.lr.or(Some(lr)), ..updates.clone() }
            }
            (Some(_), _) | (None, None) => updates.clone(),
        }
    }

    /// Returns the settings of a run of `iters` steps.
    ///
    /// # Errors
    /// Those of [`Setup::recipe`].
    pub fn settings(&self, pixels: LossDivisor, iters: u64) -> Result<Settings, Failure> {
        let recipe = self.recipe(iters)?;
        Ok(Settings { network: self.chosen.network()?, batch: self.batch(), pixels, recipe })
    }

    /// Describes the optimizer if it differs from the task's default.
    #[must_use]
    pub fn updated(&self, iters: u64) -> Option<String> {
        let usual = self.recipe_of(&Updates::default(), iters).ok();
        let recipe = self.recipe(iters).ok()?;
        (Some(&recipe) != usual.as_ref()).then(|| recipe.words())
    }

    /// Returns a description of the network as a phrase, for messages and reports.
    #[must_use]
    pub fn words(&self) -> String {
        self.chosen
            .network()
            .map_or_else(|_| self.chosen.net().to_string(), |network| self.task().kind().network(network))
    }

    /// Returns the network and how its loss is divided, if not by the batch: `SegNetBasic16, loss divided as in the
    /// paper`.
    #[must_use]
    pub fn subject(&self, pixels: LossDivisor) -> String {
        if self.reading.bad_image {
            return "One NaN image among 10 000".to_owned();
        }
        if self.reading.short_recordings {
            return "Some recordings too short for their transcript".to_owned();
        }
        let words = self.words();
        let network = words.trim_end_matches(',');
        match pixels {
            LossDivisor::Batch => network.to_owned(),
            LossDivisor::Fixed(LossDivisor::PAPER) => format!("{network}, loss divided as in the paper"),
            LossDivisor::Fixed(number) => format!("{network}, loss divided by {number}"),
        }
    }

    /// Describes the divisor of the loss; `image` is the number of pixels of a training image.
    #[must_use]
    pub fn divisor(&self, pixels: LossDivisor, image: usize) -> String {
        let (what, own) = self.task().kind().loss_denominator(self.batch(), image);
        let LossDivisor::Fixed(number) = pixels else {
            return format!(
                "The loss is the mean over the {} of a batch.",
                self.task().kind().loss_unit(self.chosen.net())
            );
        };
        let ratio = number as f64 / own as f64;
        let than = if ratio >= 1.0 { (ratio, "smaller") } else { (1.0 / ratio, "larger") };
        let makes_up = match self.with_usual(&self.updates).optimizer.unwrap_or_default() {
            Rule::Sgd { .. } => "and the learning rate compensates",
            Rule::Adam(_) | Rule::AdamW(_) => "and Adam's eps compensates",
            Rule::Lamb(_) | Rule::RmsProp { .. } | Rule::Adagrad { .. } => "and the optimizer's eps compensates",
            Rule::Lion { .. } => "and Lion reads only their signs",
        };
        let paper =
            if number == LossDivisor::PAPER { ", those of twelve images of 360 × 480 as in the paper" } else { "" };
        format!(
            "The loss is divided by {number} {what}{paper}, where a batch has {own}: gradients are {:.0} times {} than \
             those of a mean, {makes_up}.",
            than.0, than.1
        )
    }
}

fn whole(text: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("must be a whole number from {} to {}", range.start(), range.end()))
}

pub(crate) fn positive(text: &str) -> Result<usize, String> {
    whole(text, 1..=1 << 20)
}

pub(crate) fn width(text: &str) -> Result<usize, String> {
    whole(text, 1..=4096)
}

pub(crate) fn threads(text: &str) -> Result<usize, String> {
    whole(text, 0..=4096)
}

/// Parses a number of passes over the training data.
pub(crate) fn epochs(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (1e-6..=1e6).contains(number));
    number.ok_or_else(|| "must be a number from 0.000001 to 1000000".to_owned())
}

/// Returns the number of steps of so many passes over the training data, rounded up.
pub(crate) fn steps_of_epochs(epochs: f64, samples: usize, batch: usize) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, and saturates")]
    let steps = (epochs * samples as f64 / batch.max(1) as f64).ceil() as u64;
    steps.max(1)
}
