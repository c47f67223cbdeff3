//! `gradscale train`: one method, with checkpoints, to be stopped and resumed at any moment.

pub(crate) mod checkpoints;
mod log;

use crate::{
    Failure,
    args::{Device, Task},
    data::Segmentation,
    output,
    task::{
        Pixels,
        segnet::{Run, Settings},
    },
    trace::Writer,
};
use checkpoints::Checkpoints;
use clap::Args;
use gradscale::{Cpu, Method};
use indicatif::ProgressBar;
use log::{Entry, Log};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Instant,
};

/// `gradscale train`.
#[derive(Clone, Debug, Args)]
#[command(after_help = FILES)]
pub struct Train {
    #[command(flatten)]
    plan: Plan,
    /// A checkpoint after so many steps; 0: at the end only.
    #[arg(long, value_name = "N", default_value_t = 100)]
    checkpoint_every: u64,
    /// Goes on from the last checkpoint in this directory, with the settings that it was begun with; of those, only
    /// --iters, --threads and --checkpoint-every can be given anew.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "data", "method", "batch", "width", "pixels", "seed", "eval_every"])]
    resume: Option<PathBuf>,
    /// Directory for checkpoints and log [default: the first of train-1, train-2, … that is not there]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Training steps, those before a resume included.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iters: Option<u64>,
    /// Threads of the CPU; 0: one for each core. Results do not depend on it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4096))]
    threads: u16,
    /// Records what every cast site saw in every step into a new file, for `gradscale replay`. Steps take longer.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    trace: Option<PathBuf>,
    /// TOML file with options of this command (iters = 600); the command line wins.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const FILES: &str = "Files:
  checkpoint-N.safetensors   the last two: masters, optimizer, scales, running statistics, position in the data
  log.jsonl                  one line for each step: iteration, loss, seconds; why it was skipped; scores
A training that is killed and resumed gives the same weights, bit for bit, as one that is not.";

/// What a training is, and what its checkpoints say that it is.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Network and kind of data.
    #[arg(long, value_enum, default_value = "segnet")]
    task: Task,
    /// Directory with images and labels; without it, small road scenes are made up.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Precision and scaling; `gradscale compare --help` lists the methods.
    #[arg(long, value_name = "METHOD", default_value = "gs")]
    method: String,
    /// Images in a batch.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = crate::args::positive)]
    batch: usize,
    /// Channels of each layer; SegNetBasic has 64.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = crate::args::width)]
    pub(crate) width: usize,
    /// What the sum of losses is divided by: a number of pixels, or `batch` for those that have a label.
    #[arg(long, value_name = "N|batch", default_value = "batch")]
    pixels: Pixels,
    /// Decides first weights, order and flips.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Scores after so many steps; 0: at the end only.
    #[arg(long, value_name = "N", default_value_t = 0)]
    eval_every: u64,
    /// Where to run.
    #[arg(long, value_enum, default_value = "cpu")]
    device: Device,
}

/// Steps, unless told.
const ITERS: u64 = 400;

/// Trains, or goes on.
///
/// # Errors
/// Data, checkpoints or directories that cannot be used, a device that fails, too many skips in a row.
pub fn run(arguments: &Train) -> Result<(), Failure> {
    let resumed = match &arguments.resume {
        Some(directory) => {
            let lock = lock(directory)?;
            Some((directory.clone(), lock, Checkpoints::new(directory).last()?))
        }
        None => None,
    };
    let mut plan: Plan = match &resumed {
        Some((_, _, found)) => found.plan()?,
        None => arguments.plan.clone(),
    };
    if let Some(data) = &mut plan.data {
        // A resume may be started elsewhere.
        *data = data.canonicalize().map_err(|error| Failure::file(data, error))?;
    }
    let data = plan.load()?;
    let Device::Cpu = plan.device;
    let device = Cpu::new(usize::from(arguments.threads)).map_err(|error| Failure::at("--threads", error))?;
    let settings = Settings { batch: plan.batch, width: plan.width, pixels: plan.pixels };
    let mut run = Run::new(device, &data, settings, plan.method()?, plan.seed)?;
    // What does not fit has been said before a directory is made.
    let (directory, _lock, iteration) = match resumed {
        Some((directory, lock, found)) => {
            run.load(&found.bytes).map_err(|error| Failure::file(&found.path, error))?;
            (directory, lock, found.iteration)
        }
        None => {
            let directory = output::directory(arguments.out.as_deref(), "train", "log.jsonl")?;
            let lock = lock(&directory)?;
            (directory, lock, 0)
        }
    };
    let trace = match &arguments.trace {
        Some(path) => {
            run.observe_fully();
            Some(Writer::create(path)?)
        }
        None => None,
    };
    let iters = arguments.iters.unwrap_or(ITERS.max(iteration));
    let log = Log::open(&directory.join("log.jsonl"), iteration)?;
    let bar = output::progress(iters).with_position(iteration);
    let mut training = Training { run, plan, log, trace, checkpoints: Checkpoints::new(&directory), iteration, iters };
    while training.iteration < iters {
        training.step(arguments.checkpoint_every, &bar)?;
    }
    bar.finish_and_clear();
    output::print(&format!("{}\n", directory.display()))
}

/// A training under way.
struct Training<'a> {
    run: Run<'a, Cpu>,
    plan: Plan,
    log: Log,
    trace: Option<Writer>,
    checkpoints: Checkpoints,
    iteration: u64,
    iters: u64,
}

impl Training<'_> {
    fn step(&mut self, checkpoint_every: u64, bar: &ProgressBar) -> Result<(), Failure> {
        let start = Instant::now();
        let outcome = self.run.step()?;
        let seconds = start.elapsed().as_secs_f64();
        self.iteration += 1;
        let iteration = self.iteration;
        bar.set_message(format!("loss {:.4}", outcome.loss));
        bar.inc(1);
        if let Some(trace) = &mut self.trace {
            trace.push(iteration, outcome.skipped.is_some(), self.run.trainer())?;
        }
        let due = |every: u64| iteration == self.iters || every != 0 && iteration.is_multiple_of(every);
        let scores = if due(self.plan.eval_every) { Some(self.run.evaluate()?) } else { None };
        let skipped = outcome.skipped.as_ref().map(ToString::to_string);
        self.log.push(&Entry { iteration, loss: outcome.loss, seconds, skipped, scores })?;
        if due(checkpoint_every) {
            // The log first: a checkpoint never knows of steps that the log does not.
            self.log.sync()?;
            self.checkpoints.save(&self.run, &self.plan, iteration)?;
        }
        let Some(scores) = scores else { return Ok(()) };
        let (miou, right) = (100.0 * scores.miou, 100.0 * scores.global_accuracy);
        let line = format!("step {iteration}: loss {:.4}, mIoU {miou:.1} %, right {right:.1} %\n", outcome.loss);
        bar.suspend(|| output::print(&line))
    }
}

impl Plan {
    fn load(&self) -> Result<Segmentation, Failure> {
        match &self.data {
            Some(directory) => Ok(Segmentation::load(directory)?),
            None => Ok(Segmentation::synthetic(self.seed)),
        }
    }

    pub(crate) fn method(&self) -> Result<Method, Failure> {
        self.method.parse().map_err(|error: gradscale::MethodError| Failure::at("--method", error))
    }
}

/// One training at a time in a directory. The system lets go of it when the process ends, however that happens.
fn lock(directory: &Path) -> Result<File, Failure> {
    let path = directory.join("lock");
    let file = File::create(&path).map_err(|error| Failure::file(&path, error))?;
    file.try_lock().map_err(|_| Failure::file(directory, "another training is at work here"))?;
    Ok(file)
}
