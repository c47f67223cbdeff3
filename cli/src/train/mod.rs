//! `gradscale train`: one method, with checkpoints, to be stopped and resumed at any moment.

pub(crate) mod checkpoints;
mod log;
mod tensorboard;

use crate::{
    Failure,
    args::Setup,
    compare::{
        record::{Description, Recorder},
        table,
    },
    machine::Origin,
    metrics::Metrics,
    output,
    report::Report,
    rule,
    task::{Data, Pixels, Run, open},
    trace,
};
use checkpoints::Checkpoints;
use clap::Args;
use gradscale::{MemoryReport, Method, core::stats::Detail};
use indicatif::ProgressBar;
use log::Log;
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
    /// --iters, --device, --threads and --checkpoint-every can be given anew.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "task", "net", "data", "method", "batch", "width", "pixels", "seed", "eval_every"])]
    resume: Option<PathBuf>,
    /// Directory for checkpoints and log [default: the first of train-1, train-2, … that is not there]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Training steps, those before a resume included.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iters: Option<u64>,
    /// First weights from a PyTorch model: a safetensors file of its state_dict, whose modules are called as the layers
    /// that `gradscale plan` lists, without the network's name (encoder.conv1.weight). Layers that it lacks start as always.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    weights: Option<PathBuf>,
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
  report.html                loss, scores, scales and underflow at every site, after every checkpoint
  log.jsonl                  one line for each step: iteration, loss, seconds; why it was skipped or repeated; scores; sites
  tensorboard/               the same for TensorBoard: tensorboard --logdir DIR
A training that is killed and resumed gives the same weights, bit for bit, as one that is not.";

/// What a training is, and what its checkpoints say that it is.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct Plan {
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) setup: Setup,
    /// Precision and scaling; `gradscale compare --help` lists the methods.
    #[arg(long, value_name = "METHOD", default_value = "gs")]
    method: String,
    /// What the method remembers where it does not say.
    #[arg(skip = rule::TODAY.to_owned())]
    #[serde(default = "before")]
    history: String,
    /// What the sum of losses is divided by: a number of pixels or images, or `batch` for those of the batch that have
    /// a label.
    #[arg(long, value_name = "N|batch", default_value = "batch")]
    pixels: Pixels,
    /// Decides first weights, order and flips.
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Scores after so many steps; 0: at the end only.
    #[arg(long, value_name = "N", default_value_t = 0)]
    eval_every: u64,
}

/// Older checkpoints do not say.
fn before() -> String {
    rule::BEFORE.to_owned()
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
        Some((_, _, found)) => {
            let mut plan = found.plan()?;
            plan.setup.device = arguments.plan.setup.device;
            if plan.history != rule::TODAY {
                plan.method = rule::spelled(&plan.method, &plan.history);
            }
            plan
        }
        None => arguments.plan.clone(),
    };
    plan.setup.batch = Some(plan.setup.batch());
    if let Some(data) = &mut plan.setup.data {
        // A resume may be started elsewhere.
        *data = data.canonicalize().map_err(|error| Failure::file(data, error))?;
    }
    let data = plan.setup.load(plan.seed)?;
    let device = (plan.setup.device, usize::from(arguments.threads));
    let mut run = open(
        device,
        &data,
        plan.setup.settings(plan.pixels),
        &plan.method()?,
        plan.seed,
        arguments.weights.as_deref(),
    )?;
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
    let checkpoints = Checkpoints::new(&directory);
    // The one that was killed may not have come to it.
    checkpoints.prune()?;
    let trace = arguments.trace.as_deref().map(trace::Writer::create).transpose()?;
    let trace = trace.map(|trace| trace.made_by(&plan.method));
    if trace.is_some() {
        run.observe_operands();
    }
    let iters = arguments.iters.unwrap_or(ITERS.max(iteration));
    let (log, entries) = Log::open(&directory.join("log.jsonl"), iteration)?;
    let mut recorder = Recorder::new(&plan.method, plan.seed, iters);
    entries.iter().for_each(|entry| recorder.restore(entry));
    let board = tensorboard::Writer::create(&directory.join("tensorboard"), iteration)?;
    let bar = output::progress(iters).with_position(iteration);
    let mut training =
        Training { data: &data, run, plan, directory: &directory, recorder, log, board, trace, checkpoints };
    for iteration in iteration + 1..=iters {
        training.step(iteration, iters, arguments.checkpoint_every, &bar)?;
    }
    // Of a training that was killed just before its report.
    if iteration >= iters {
        let memory = training.run.memory();
        training.report(entries.last().and_then(|entry| entry.scores), memory, iters)?;
    }
    bar.finish_and_clear();
    output::print(&format!("{}\n", directory.display()))
}

/// A training under way.
struct Training<'a> {
    data: &'a Data,
    run: Box<dyn Run + 'a>,
    plan: Plan,
    directory: &'a Path,
    recorder: Recorder,
    log: Log,
    board: tensorboard::Writer,
    trace: Option<trace::Writer>,
    checkpoints: Checkpoints,
}

impl Training<'_> {
    fn step(&mut self, iteration: u64, iters: u64, checkpoint_every: u64, bar: &ProgressBar) -> Result<(), Failure> {
        let due = |every: u64| iteration == iters || every != 0 && iteration.is_multiple_of(every);
        // What a checkpoint's log says of sites holds for all steps before it.
        let sampled = self.recorder.samples(iteration) || due(checkpoint_every);
        self.run.observe(if sampled || self.trace.is_some() { Detail::Full } else { Detail::Counts });
        let start = Instant::now();
        let outcome = self.run.step()?;
        let seconds = start.elapsed().as_secs_f64();
        bar.set_message(format!("loss {:.4}", outcome.loss));
        bar.inc(1);
        if let Some(trace) = &mut self.trace {
            trace.push_repeated(iteration, self.run.attempts())?;
            trace.push(iteration, outcome.skipped.is_some(), self.run.sites(), self.run.operands())?;
        }
        let mut entry = self.recorder.step(iteration, &outcome, seconds, &self.run.sites(), sampled);
        // Of training: evaluation comes with batches of other sizes.
        let memory = self.run.memory();
        let scores = if due(self.plan.eval_every) { Some(self.run.evaluate()?) } else { None };
        if let Some(scores) = scores {
            entry.scores = Some(scores);
            self.recorder.score(iteration, scores);
        }
        self.log.push(&entry)?;
        self.board.push(&entry)?;
        if due(checkpoint_every) {
            // The log first: a checkpoint never knows of steps that the log does not.
            self.log.sync()?;
            self.board.sync()?;
            self.checkpoints.save(&*self.run, &self.plan, iteration)?;
            self.report(scores, memory, iters)?;
        }
        let Some(scores) = scores else { return Ok(()) };
        let line = format!("step {iteration}: loss {:.4}, {}\n", outcome.loss, words(&scores));
        bar.suspend(|| output::print(&line))
    }

    /// What is known so far; with sample images, where there are scores.
    fn report(&mut self, scores: Option<Metrics>, memory: MemoryReport, iters: u64) -> Result<(), Failure> {
        if let Some(scores) = scores {
            let samples = self.run.samples()?;
            self.recorder.finish(scores, samples, memory);
        }
        let path = self.directory.join("report.html");
        let (plan, origin, described) = (&self.plan, Origin::here(), Description::of(self.data));
        let report = Report {
            title: table::title(&plan.setup, plan.pixels, &described),
            circumstances: table::circumstances(&plan.setup, iters, &[plan.seed], &described, &origin),
            methods: vec![&plan.method],
            runs: &[self.recorder.record()],
            data: self.data,
            origin: &origin,
            arguments: serde_json::to_value(plan).map_err(|error| Failure::file(&path, error))?,
        };
        output::write(&path, report.html().as_bytes())
    }
}

fn words(scores: &Metrics) -> String {
    let right = format!("right {:.1} %", 100.0 * scores.global_accuracy);
    scores.miou.map_or(right.clone(), |miou| format!("mIoU {:.1} %, {right}", 100.0 * miou))
}

impl Plan {
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
