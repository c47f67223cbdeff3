//! The command line.

mod lists;

pub use lists::{Methods, Seeds};

use crate::{
    Failure,
    amp::Amp,
    commands::{inspect::Inspect, plan::Plan},
    data::Reading,
    device::Device,
    optimizer::{Recipe, Rule, Updates},
    output,
    predict::Predict,
    propose::Propose,
    regimes::Regimes,
    replay::Replay,
    task::{Data, Net, Pixels, Settings, Task},
    train::Train,
};
use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Trains neural networks in 16-bit floating point, with a scale of its own for every gradient.
#[derive(Debug, Parser)]
#[command(name = "gradscale", version, max_term_width = 110, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "Examples:
  gradscale compare
      five methods on made-up road scenes, then on two towers that no single scale can train: a minute or two
  gradscale compare --data camvid-90x120 --batch 12 --iters 600
      the same on CamVid
  gradscale compare --methods fp32,gs:paper,gs:exact,interval=100 --seeds 0,1,2
  gradscale train --task classify --data mnist --iters 2000
      a residual network on MNIST, or CIFAR; without --data, on made-up digits";

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Trains one network by several methods from the same start, and compares them.
    Compare(Compare),
    /// Trains by one method, with checkpoints; goes on where a training was stopped.
    Train(Train),
    /// Applies a trained network to images: label images, and overlays to look at.
    Predict(Predict),
    /// Says what another method would have made of a recorded training.
    Replay(Replay),
    /// Benchmarks scaling rules in regimes that are hard on them: losses that change by orders of magnitude, values that
    /// are not finite, heads of unlike weight.
    Regimes(Regimes),
    /// Proposes a fixed loss scale from a recorded training, and says why.
    Propose(Propose),
    /// Takes a number apart: bits by field, value, neighbours, what a cast does. Or shows what a long sum loses.
    Inspect(Inspect),
    /// Shows which operator runs in which precision.
    Plan(Plan),
    /// Prints completions for a shell, to be sourced by it.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Shows what there is to run on, and what it does with small numbers.
    Devices,
}

/// What is read.
const DATA: &str = "Data; without them, small road scenes or digits are made up.
For segnet, a directory of images with a class for every pixel:
- images/{train,test}/NAME.png|jpg and labels/{train,test}/NAME.png
- {train,test}/images/NAME.png|jpg and {train,test}/labels/NAME.png
- images/ and labels/ without these: every fifth image is for scores, or
  train.txt and test.txt list the names
- train-images-idx4-ubyte[.gz] and train-labels-idx3-ubyte[.gz], the same for test
masks or annotations may stand for labels, NAME_mask.png for NAME.png, val for
test; beside test it is for the scores of --eval-every.
classes.tsv (id, name, r, g, b; tabs between) says what values mean.
For classify, images with one class each:
- CLASS/*.png|jpg: a folder for each class, every fifth image for scores
- train/CLASS/*.png|jpg and test/CLASS/*.png|jpg
- train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz], the same for t10k
  or test (MNIST)
- data_batch_1.bin[.gz] ... and test_batch.bin[.gz] (CIFAR)
or, with --net mlp, rows of numbers with one class each:
- a file NAME.csv, every fifth line for scores, or a directory with train.csv and
  test.csv: first a line of names, then numbers, and a class in one column
Images and label images have one channel or three, of 8 or 16 bits.";

/// Network, data and device of a training.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct Setup {
    /// Network and kind of data [default: segnet]
    #[arg(long, value_enum)]
    #[serde(serialize_with = "resolved")]
    pub task: Option<Task>,
    /// Network for --task classify.
    #[arg(long, value_enum, default_value = "resnet")]
    #[serde(default)]
    pub net: Net,
    /// A directory or a file; without one, data are made up.
    #[arg(long, value_name = "PATH", help = DATA)]
    pub data: Option<PathBuf>,
    /// How data are read.
    #[command(flatten)]
    #[serde(flatten)]
    pub reading: Reading,
    /// Images in a batch [default: 8 for segnet, 64 for classify]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub batch: Option<usize>,
    /// Channels of each layer; SegNetBasic has 64. Of a residual network, those of the first stage; a perceptron and
    /// towers have 8 times as many units in a layer.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = width)]
    pub width: usize,
    /// How weights are updated.
    #[command(flatten)]
    #[serde(flatten)]
    pub updates: Updates,
    /// Mixed precision.
    #[command(flatten)]
    #[serde(flatten)]
    pub amp: Amp,
    /// Where to run: `gradscale devices` lists what there is. [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<Device>,
}

/// Results and checkpoints say which it was.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn resolved<S: serde::Serializer>(task: &Option<Task>, serializer: S) -> Result<S::Ok, S::Error> {
    task.unwrap_or_default().serialize(serializer)
}

impl Setup {
    /// Network and kind of data.
    #[must_use]
    pub fn task(&self) -> Task {
        self.task.unwrap_or_default()
    }

    /// Images in a batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch.unwrap_or_else(|| self.task().batch())
    }

    /// Where to run.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device.unwrap_or(Device::Cpu)
    }

    /// The data; says what was taken for what.
    ///
    /// # Errors
    /// A directory that is no such data set, or not one for the network.
    pub fn load(&self, seed: u64) -> Result<Data, Failure> {
        let data = Data::load(self.task(), self.data.as_deref(), &self.reading, seed)?;
        let notes = data.notes();
        notes.left_out.iter().for_each(|line| eprintln!("gradscale: {}", Failure::plain(line)));
        notes.taken.iter().try_for_each(|line| output::print(&format!("{}\n", Failure::plain(line))))?;
        data.suits(self.net)?;
        Ok(data)
    }

    /// How weights are updated in a training of so many steps.
    ///
    /// # Errors
    /// A warm-up that is as long.
    pub fn recipe(&self, iters: u64) -> Result<Recipe, Failure> {
        self.updates.recipe(self.task().lr(self.net), iters)
    }

    /// What a run of so many steps depends on.
    ///
    /// # Errors
    /// Those of [`Setup::recipe`].
    pub fn settings(&self, pixels: Pixels, iters: u64) -> Result<Settings, Failure> {
        let recipe = self.recipe(iters)?;
        Ok(Settings { net: self.net, batch: self.batch(), width: self.width, pixels, recipe })
    }

    /// How weights are updated, in words, where it is not as usual.
    #[must_use]
    pub fn updated(&self, iters: u64) -> Option<String> {
        let usual = Updates::default().recipe(self.task().lr(self.net), iters).ok();
        let recipe = self.recipe(iters).ok()?;
        (Some(&recipe) != usual.as_ref()).then(|| recipe.words())
    }

    /// The network in words.
    #[must_use]
    pub fn network(&self) -> String {
        let width = self.width;
        match (self.task(), self.net) {
            (Task::Segnet, _) => format!("SegNetBasic ({width} channels)"),
            (Task::Classify, Net::Resnet) => format!("ResNet-8 ({width} channels)"),
            (Task::Classify, Net::Mlp) => format!("A perceptron (two layers of {} units)", 8 * width),
            (Task::Classify, Net::Towers) => "Two towers, losses 2⁴⁶ apart,".to_owned(),
        }
    }

    /// What the loss is divided by, in a sentence; a training image has so many pixels.
    #[must_use]
    pub fn divisor(&self, pixels: Pixels, image: usize) -> String {
        let (what, own) = match self.task() {
            Task::Segnet => ("pixels", self.batch() * image),
            Task::Classify => ("images", self.batch()),
        };
        let Pixels::Fixed(number) = pixels else {
            return format!("The loss is the mean over the {what} of a batch.");
        };
        let ratio = number as f64 / own as f64;
        let than = if ratio >= 1.0 { (ratio, "smaller") } else { (1.0 / ratio, "larger") };
        let makes_up = match self.updates.optimizer.unwrap_or_default() {
            Rule::Sgd { .. } => "the learning rate",
            Rule::Adam(_) | Rule::AdamW(_) => "Adam's eps",
        };
        let paper = if number == PAPER { ", those of twelve images of 360 × 480 as in the paper" } else { "" };
        format!(
            "The loss is divided by {number} {what}{paper}, where a batch has {own}: gradients are {:.0} times {} than \
             those of a mean, and {makes_up} makes up for it.",
            than.0, than.1
        )
    }
}

/// Pixels of twelve images of 360 × 480: the paper's batch.
const PAPER: u64 = 12 * 360 * 480;

/// `gradscale compare`.
#[derive(Clone, Debug, Args, Serialize)]
#[command(after_help = METHODS)]
pub struct Compare {
    /// Network, data and device.
    #[command(flatten)]
    #[serde(flatten)]
    pub setup: Setup,
    /// Methods, separated by commas.
    #[arg(long, value_name = "LIST", default_value = "fp32,fp16,fixed:128,dynamic,gs")]
    pub methods: Methods,
    /// Instead of methods, the usual search for a fixed scale: fp32 and fixed:8, fixed:16 … fixed:32768.
    #[arg(long, conflicts_with = "methods")]
    pub sweep: bool,
    /// Training steps.
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: u64,
    /// What the sum of losses is divided by: a number of pixels (learning rate, weight decay and --clip make up for
    /// it, so that training in f32 stays the same; they are said for a mean), or `batch` for those of the batch that have a label [default: 2073600 for
    /// segnet, as twelve images of 360 × 480 have; batch for classify, where it is images that count]
    #[arg(long, value_name = "N|batch")]
    pub pixels: Option<Pixels>,
    /// Decides first weights, order and flips.
    #[arg(long, value_name = "S", default_value_t = 0, conflicts_with = "seeds")]
    pub seed: u64,
    /// Several seeds, separated by commas; the table gives means and spreads.
    #[arg(long, value_name = "LIST")]
    pub seeds: Option<Seeds>,
    /// Scores of images for validation after so many steps: a part called val beside test, else every tenth training
    /// image, which is then kept from training. The last scores are of the test set. 0: these only.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub eval_every: u64,
    /// Threads of the CPU; 0: one for each core. Results do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads)]
    pub threads: usize,
    /// Directory for report.html, table.md and results.json, which must not hold results yet [default: the first of compare-1,
    /// compare-2, … that does not]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// TOML file with options of this command (iters = 600); the command line wins.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
}

const METHODS: &str = "Methods:
  fp32             all in f32: the baseline
  fp16             mixed precision without any scale
  fixed:SCALE      one scale for all gradients, a power of two: 1024 or 2^10
  dynamic          one scale, from 2^16, doubled after 2000 steps without an overflow, halved after one
  dynamic:N        the paper's baseline: doubled until it overflows, then times 2^(1/N) every step
  logmax           one scale from the distribution of the largest gradients
  gs               a scale for every gradient, from its histogram (= gs:exact)
  gs:paper         the same by the paper's models, its slips mended; gs:paper-literal: as printed; gs:authors: the scales
                   that the authors' code decides on, in this engine
Options stand behind a method, separated by commas (dynamic:init=1024,interval=500):
  of gs            gamma=1e-4, interval=100, calls=each, and of gs:exact window=11, room=6, history=1, outliers=24
  of all but gs    wgrad=half: gradients of weights are half before they are f32, as half weights have them in PyTorch;
                   they flush and overflow at sites of their own, LAYER/wgrad and LAYER/bgrad
  of dynamic       init=2^16, interval=2000 (steps), growth=2, backoff=0.5, least=2^-24, most=2^30;
                   hysteresis=cumulative:N (lowered from the Nth overflow since it grew) or consecutive:N (without a
                   clean step between); tolerance=0.05 (share of overflows that does not lower it);
                   floor=40000:2^13/150000:2^15 (a minimum that rises: from step 40000, from step 150000)
  of dynamic:N     least, most
  of logmax        mean=0.99, spread=0.999 (decays), quantile=3.09, ceiling=2^16, least, most

Results: report.html and table.md for people, results.json for programs. Exit code 2 with one line if something is wrong.";

impl Compare {
    /// With what the task says where nothing was said.
    fn resolved(&self) -> Result<Self, Failure> {
        let mut all = self.clone();
        all.setup.updates = self.setup.recipe(self.iters)?.said();
        all.setup.task = Some(self.setup.task());
        all.setup.batch = Some(self.setup.batch());
        all.setup.reading.validation = self.eval_every != 0;
        all.setup.device = Some(self.setup.device());
        all.pixels = Some(self.divisor());
        if self.sweep {
            all.methods = Methods::sweep();
        }
        Ok(all)
    }

    /// What the sum of losses is divided by.
    #[must_use]
    pub fn divisor(&self) -> Pixels {
        let default = match self.setup.task() {
            Task::Segnet => Pixels::Fixed(PAPER),
            Task::Classify => Pixels::Batch,
        };
        self.pixels.unwrap_or(default)
    }

    /// The seeds to run.
    #[must_use]
    pub fn all_seeds(&self) -> Vec<u64> {
        self.seeds.as_ref().map_or_else(|| vec![self.seed], |seeds| seeds.0.clone())
    }

    /// What is trained: the task asked for. Where nothing was said of task, data, batch and divisor, two towers on
    /// made-up digits beside it, which show what one scale cannot do.
    ///
    /// # Errors
    /// Those of [`Setup::recipe`].
    pub fn cases(&self) -> Result<Vec<Self>, Failure> {
        let Setup { task, data, batch, .. } = &self.setup;
        let chosen = task.is_some() || data.is_some() || batch.is_some() || self.pixels.is_some();
        // Layers and learning rates are those of one network.
        let chosen = chosen || self.setup.amp.names_layers() || self.setup.updates != Updates::default() || self.sweep;
        let mut towers = self.clone();
        (towers.setup.task, towers.setup.net) = (Some(Task::Classify), Net::Towers);
        let beside = (!chosen).then_some(towers);
        std::iter::once(self).chain(&beside).map(Self::resolved).collect()
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
