//! `gradscale train`: one method, with checkpoints, to be stopped and resumed at any moment.

pub(crate) mod checkpoints;
mod files;
mod gradient_transport;
mod history;
mod log;
mod plan;
pub(crate) mod signals;
mod tensorboard;
mod times;

use crate::{
    Failure,
    help::heading,
    machine::Origin,
    metrics::{MISSING_VALUE, Metrics},
    output::{self, Claim, Progress, layout},
    ranks,
    record::{Description, GradientTraffic, LogEntry, Recorder, StepResult, mean_of_last},
    report::Report,
    sanity_checks,
    setup::{epochs, steps_of_epochs},
    tasks::{Dataset, On, Task, TrainingRun},
    trace,
};
use checkpoints::{Checkpoints, FoundCheckpoint};
use clap::Args;
use files::Files;
use gradient_transport::{measured, route};
use gradscale::{
    Difference, MemoryReport,
    distributed::{Group, Traffic},
    gradscale_core::stats::Detail,
};
use history::History;
use log::Log;
pub(crate) use plan::Plan;
use serde_json::{Value, json};
use signals::{Signal, Signals};
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};
use times::Times;

/// Files that are written again after each checkpoint.
const PAGES: [&str; 1] = ["report.html"];

/// `gradscale train`.
#[derive(Clone, Debug, Args)]
#[command(after_help = SHORT_HELP, after_long_help = FILES)]
pub struct Train {
    #[command(flatten)]
    plan: Plan,
    /// Resumes a training with all its settings
    ///
    /// Resumes from the last intact checkpoint in this directory. --iters, --checkpoint-every, --device and --threads
    /// can be changed.
    #[arg(long, help_heading = heading::RESULTS, value_name = "DIR", conflicts_with_all = ["out", "task", "network", "data", "method", "batch", "width", "lr", "optimizer", "schedule", "weight_decay", "clip", "pixels", "seed", "eval_every", "size", "crop", "ignore", "label", "languages", "pieces", "tokens", "window", "skip_broken", "features", "memory", "amp", "keep_f32", "half", "micro_batches", "exchange", "batch_norm"])]
    resume: Option<PathBuf>,
    /// Passes over the training data, instead of --iters
    #[arg(long, help_heading = heading::TRAINING, value_name = "N", conflicts_with_all = ["iters", "resume"], value_parser = epochs)]
    epochs: Option<f64>,
    /// Prints JSON for scripts
    ///
    /// One line on the standard output; text goes to the standard error.
    #[arg(long, help_heading = heading::RESULTS)]
    json: bool,
    /// Directory for the results [default: a new one, train-N]
    ///
    /// It receives checkpoints, log and report [default: the first of train-1, train-2, … that does not exist]
    #[arg(long, help_heading = heading::RESULTS, value_name = "DIR")]
    out: Option<PathBuf>,
    /// TOML file with options of this command
    ///
    /// For example iters = 600. Options of the command line override it.
    #[arg(long, help_heading = heading::RESULTS, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ends a training of several ranks after this time without an answer from a rank, which may have died or hang.
    #[arg(long, hide_short_help = true, help_heading = heading::DEVICE, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    rank_timeout: u64,
    /// Prints the time of every kernel launch after 13 steps
    ///
    /// Times are by the device's clock, with memory traffic, arithmetic and share of the step. During five steps launches
    /// run one after another; results are the same.
    #[arg(long, help_heading = heading::RESULTS)]
    times: bool,
}

const SHORT_HELP: &str = "Files and all options: gradscale train --help";

const FILES: &str = "Files:
  checkpoint-N.safetensors   the last two: settings, masters, optimizer, scales, running statistics, position in the
                             data, losses so far; with checksums
  report.html                loss, scores, scales and underflow at every site, after every checkpoint
  log.jsonl                  one line for each step: iteration, loss, seconds; why it was skipped or repeated; scores; sites
  tensorboard/               the same for TensorBoard: tensorboard --logdir DIR
Ctrl-C, or SIGTERM, finishes the step, saves a checkpoint and prints the command to resume; a second one ends at once. A
training that was stopped, killed or out of disk space and then resumed has the same weights, bit for bit, as one without
interruption. Damaged files are listed and renamed to NAME.damaged-1.";

/// Trains a network or resumes its training; a signal ends it early.
///
/// # Errors
/// Data, checkpoints or directories that cannot be used, a device that fails, too many skips in a row, ranks that are
/// not alike.
pub fn run(arguments: &Train) -> Result<ExitCode, Failure> {
    let group = ranks::join(arguments.rank_timeout)?;
    let done = match &arguments.resume {
        Some(directory) => resume(directory, arguments, &group),
        None => begin(arguments, &group),
    };
    ranks::end(&group, done)
}

fn begin(arguments: &Train, group: &Group) -> Result<ExitCode, Failure> {
    let (out, given) = (arguments.out.as_deref(), &arguments.plan);
    output::set_json(arguments.json);
    let mut fresh = given.fresh();
    let (setup, network) = fresh.setup.for_data();
    fresh.setup = setup;
    let (plan, data, batch) = match arguments.epochs {
        Some(epochs) => {
            // The number of steps follows from the data, which do not depend on it.
            let data = load(&fresh, group)?;
            let (mut plan, batch) = fresh.with_data(&*data, given);
            plan.iters = Some(steps_of_epochs(epochs, data.counts()[0], plan.setup.batch()));
            group.check_equal("--epochs", &epochs.to_string())?;
            (plan.begun(group)?, data, batch)
        }
        None => {
            let plan = fresh.begun(group)?;
            let data = load(&plan, group)?;
            let (plan, batch) = plan.with_data(&*data, given);
            (plan, data, batch)
        }
    };
    if group.rank() == 0 {
        let notes = network.iter().chain(&batch);
        notes.into_iter().try_for_each(|line| output::print(&format!("{}\n", Failure::plain(line))))?;
        data.parts().iter().try_for_each(|line| output::print(&format!("{}\n", Failure::plain(line))))?;
        if let Some(warning) = plan.method()?.growth_warning(plan.iters()) {
            output::warn(&Failure::at(format_args!("--method {}", plan.method), warning));
        }
    }
    let mut run = plan.open(&*data, true, group)?;
    route(&*run, group)?;
    if group.rank() == 0 {
        let described = Description::from_dataset(&*data);
        let about = format!("{}, by {}", described.title(&plan.setup), plan.method);
        let passes = described.passes(&plan.setup, plan.iters());
        output::print(&(layout::fit(&about, layout::width()) + &layout::fit(&passes, layout::width())))?;
    }
    let plan = &measured(&plan, &*run, group)?;
    if plan.trace.is_some() {
        run.observe_operands();
    }
    let times = arguments.times.then(|| Times::begin(&mut *run, plan.iters())).transpose()?;
    let recorder = Recorder::new(&plan.method, plan.seed, plan.iters(), data.classes());
    let signals = Signals::listen()?;
    let first = checkpoints::content(&*run, plan, &History::default())?;
    let files = (group.rank() == 0).then(|| Files::create(out, given.trace.as_deref(), &first, plan)).transpose()?;
    drop(first);
    Training { data: &*data, run, plan, recorder, signals, files, group, times, resumed: None }.run(0, None)
}

/// Loads the data set, and checks that it is the same on all ranks.
fn load(plan: &Plan, group: &Group) -> Result<Box<dyn Dataset>, Failure> {
    if group.size() > 1 {
        group.check_equal("version", env!("CARGO_PKG_VERSION"))?;
        plan.common_settings()?.iter().try_for_each(|(name, value)| group.check_equal(name, &value.to_string()))?;
        let digest = plan.setup.data.as_deref().map(ranks::digest).transpose()?;
        group.check_equal("data set", &digest.map_or_else(String::new, |digest| format!("{digest:08x}")))?;
    }
    if group.rank() == 0 { plan.setup.load(plan.seed) } else { plan.setup.load_quietly(plan.seed) }
}

/// Content of a training's directory, as rank 0 read it.
struct Here {
    found: FoundCheckpoint,
    damaged: Vec<(PathBuf, Failure)>,
    checkpoints: Checkpoints,
    claim: Claim,
}

impl Here {
    fn look(directory: &Path) -> Result<Self, Failure> {
        if !directory.is_dir() {
            return Err(Failure::file(directory, "no such directory"));
        }
        let checkpoints = Checkpoints::new(directory);
        if checkpoints.list()?.is_empty() {
            return Err(Failure::file(directory, "no checkpoint to resume from"));
        }
        let claim = Claim::continued(directory, &PAGES)?;
        let (found, damaged) = checkpoints.newest()?;
        Ok(Self { found, damaged, checkpoints, claim })
    }
}

fn resume(directory: &Path, arguments: &Train, group: &Group) -> Result<ExitCode, Failure> {
    output::set_json(arguments.json);
    let given = &arguments.plan;
    let here = (group.rank() == 0).then(|| Here::look(directory)).transpose()?;
    let found = FoundCheckpoint::shared(here.as_ref().map(|here| &here.found), group)?;
    let plan = found.plan()?.resumed(given)?;
    let (iteration, iters, asked) = (found.iteration, plan.iters(), plan.iters.is_some());
    if let Some(fewer) = given.iters.filter(|&asked| asked < iteration) {
        let cause = format!("has {iteration} steps already, more than the {fewer} asked for");
        return Err(Failure::plain(&format!("{} {cause}", directory.display())));
    }
    let is_reported = here.is_some() && iteration >= iters && has_report_of(directory, iteration);
    if group.broadcast_from_rank0(&[u8::from(is_reported)])? == [1] {
        return here.map_or(Ok(ExitCode::SUCCESS), |here| complete(directory, &found, here, iters));
    }
    if given.setup.device.is_none() {
        found.check_device()?;
    }
    let plan = plan.begun(group)?;
    let data = load(&plan, group)?;
    let plan = plan.with_same_data(&*data)?;
    let mut run = plan.open(&*data, false, group)?;
    route(&*run, group)?;
    let plan = &measured(&plan, &*run, group)?;
    run.load(&found.bytes).map_err(|error| Failure::file(&found.path, error))?;
    if let Some(Difference { there, here, .. }) = run.replaced_engine().filter(|_| here.is_some()) {
        let cause = format!(
            "trained with the matrix products of {there}; {here} sums in another order, so bits will \
            differ"
        );
        output::warn(&Failure::file(&found.path, cause));
    }
    let left = iters.saturating_sub(iteration);
    let times = arguments.times.then(|| Times::begin(&mut *run, left)).transpose()?;
    let mut recorder = Recorder::new(&plan.method, plan.seed, iters, data.classes());
    let (mut files, mut scores) = (None, None);
    if let Some(Here { damaged, checkpoints, claim, .. }) = here {
        set_damaged_aside(damaged, &found)?;
        let (log, entries) = Log::resume(&directory.join("log.jsonl"), iteration, &found.history()?)?;
        output::print(&format!("{}\n", announcement(&found.path, iteration, iters, asked)))?;
        // The one that was killed may not have come to it.
        checkpoints.prune()?;
        let trace = match &plan.trace {
            Some(path) if iteration < iters => Some(trace::Writer::resume(path, iteration, &plan.method)?),
            Some(_) | None => None,
        };
        entries.iter().for_each(|entry| recorder.restore(entry));
        scores = entries.last().and_then(|entry| entry.scores.clone());
        let board = tensorboard::Writer::create(&directory.join("tensorboard"), iteration)?;
        files = Some(Files { directory: claim, log, board, trace, checkpoints });
    }
    if plan.trace.is_some() && iteration < iters {
        run.observe_operands();
    }
    let signals = Signals::listen()?;
    let resumed = Some(found.path.clone());
    let mut training = Training { data: &*data, run, plan, recorder, signals, files, group, times, resumed };
    if iteration >= iters {
        // Writes the report of a training that was killed just before it.
        let memory = training.run.memory();
        training.report(scores.clone(), memory)?;
    }
    training.run(iteration, scores)
}

/// Renames damaged checkpoints, and says which one is used instead.
fn set_damaged_aside(damaged: Vec<(PathBuf, Failure)>, found: &FoundCheckpoint) -> Result<(), Failure> {
    for (path, error) in damaged {
        let aside = output::set_aside(&path)?;
        let instead = format!("renamed to {}; resuming from {} instead", aside.display(), found.path.display());
        output::warn(&error.hint(&instead));
    }
    Ok(())
}

/// Answers a resume of a training that has all its steps and their report: nothing is written, unless the log is damaged.
fn complete(directory: &Path, found: &FoundCheckpoint, here: Here, iters: u64) -> Result<ExitCode, Failure> {
    set_damaged_aside(here.damaged, found)?;
    let (_, entries) = Log::resume(&directory.join("log.jsonl"), found.iteration, &found.history()?)?;
    let report = directory.join("report.html");
    output::print(&format!("{}\n{}\n", announcement(&found.path, found.iteration, iters, true), report.display()))?;
    let losses: Vec<f32> = entries.iter().map(|entry| entry.loss).collect();
    let status = Status {
        directory,
        iteration: found.iteration,
        iters,
        loss: mean_of_last(&losses),
        scores: entries.last().and_then(|entry| entry.scores.as_ref()),
        // Only the page has them, since some need the weights.
        doubts: None,
    };
    output::print_json(&status.to_json())?;
    Ok(ExitCode::SUCCESS)
}

/// Mark at the end of a report: the number of steps that it covers.
fn report_mark(iteration: u64) -> String {
    format!("<!-- gradscale train: step {iteration} -->\n")
}

/// Returns true if the report of a directory covers the steps until `iteration`.
fn has_report_of(directory: &Path, iteration: u64) -> bool {
    fs::read(directory.join("report.html")).is_ok_and(|page| page.ends_with(report_mark(iteration).as_bytes()))
}

/// State of a training for `--json`.
#[derive(Clone, Copy, Debug)]
struct Status<'a> {
    directory: &'a Path,
    /// Last step of the training so far.
    iteration: u64,
    iters: u64,
    /// Loss that terminal and page show.
    loss: Option<f64>,
    /// Scores of an evaluation after the last step.
    scores: Option<&'a Metrics>,
    /// Warnings about the training; `None` if they are not known.
    doubts: Option<&'a [String]>,
}

impl Status<'_> {
    fn to_json(self) -> Value {
        let Self { directory, iteration, iters, loss, scores, doubts } = self;
        let checkpoint = Checkpoints::new(directory).path(iteration);
        json!({
            "directory": directory, "report": directory.join("report.html"), "checkpoint": checkpoint,
            "complete": iteration >= iters, "iteration": iteration, "iterations": iters,
            "loss": loss, "scores": scores, "doubts": doubts,
        })
    }
}

/// Returns the line that announces a resume. `asked` is false if the checkpoint's version did not record the number of
/// steps.
fn announcement(checkpoint: &Path, iteration: u64, iters: u64, asked: bool) -> String {
    let checkpoint = checkpoint.display();
    if iteration >= iters {
        return format!("{checkpoint}: complete, {iteration} of {iters} steps; --iters N continues to step N");
    }
    let why = if asked {
        ""
    } else {
        " (this checkpoint of an earlier version does not record the number of steps; set it with --iters N)"
    };
    format!("{checkpoint}: resuming from step {iteration} to step {iters}{why}")
}

/// Training that `gradscale train` runs, with its files.
struct Training<'a> {
    data: &'a dyn Dataset,
    run: Box<dyn TrainingRun + 'a>,
    plan: &'a Plan,
    recorder: Recorder,
    signals: Signals,
    /// Output files on rank 0; `None` on other ranks.
    files: Option<Files>,
    group: &'a Group,
    times: Option<Times>,
    /// Checkpoint that the training continues, until its sites are compared with those of the first step.
    resumed: Option<PathBuf>,
}

/// Number of sites that a warning names.
const MAX_NAMED_SITES: usize = 4;

/// Prints a line about sites of a checkpoint that the network does not have.
fn warn_of_unused_sites(path: &Path, names: &[&str]) {
    if names.is_empty() {
        return;
    }
    let mut named = names[..names.len().min(MAX_NAMED_SITES)].join(", ");
    if names.len() > MAX_NAMED_SITES {
        named += &format!(" and {} others", names.len() - MAX_NAMED_SITES);
    }
    let cause =
        format!("the exponents of its sites {named} are unused, because the network has no such sites any more");
    output::warn(&Failure::file(path, cause));
}

impl Training<'_> {
    /// Runs the steps after `iteration`, whose scores are `scores`, until the last step or a signal.
    fn run(mut self, iteration: u64, mut scores: Option<Metrics>) -> Result<ExitCode, Failure> {
        let iters = self.plan.iters();
        if let Some(directory) = self.directory().filter(|_| self.group.size() > 1) {
            self.signals.answer(&format!(
                "stopping: the step is finished and saved if the launcher waits long enough (mpirun waits 1 s; --mca \
                 odls_base_sigkill_timeout N sets N s); {}",
                resume_hint(directory)
            ));
        }
        let progress = if self.files.is_some() { Progress::new(iters) } else { Progress::hidden() };
        let progress = progress.with_position(iteration);
        for iteration in iteration + 1..=iters {
            let (entry, signal) = self.step(iteration, &progress)?;
            if let Some(signal) = signal {
                progress.finish_and_clear();
                let done = format!("stopped and saved after step {iteration} of {iters}");
                if let Some(directory) = self.directory() {
                    output::warn(&Failure::file(directory, done).hint(&resume_hint(directory)));
                    output::print_json(&self.status(directory, iteration, entry.scores.as_ref()).to_json())?;
                }
                return Ok(signal.exit_code());
            }
            scores = entry.scores;
        }
        progress.finish_and_clear();
        if let Some(directory) = self.directory() {
            let next = next_command(self.plan.setup.task(), &Checkpoints::new(directory).path(iters));
            let report = directory.join("report.html");
            output::print(&format!("{}page: {}\nnext: {next}\n", describe_traffic(self.group), report.display()))?;
            output::print_json(&self.status(directory, iters, scores.as_ref()).to_json())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the state of the training after `iteration`.
    fn status<'b>(&'b self, directory: &'b Path, iteration: u64, scores: Option<&'b Metrics>) -> Status<'b> {
        let record = self.recorder.record();
        let (iters, loss, doubts) = (self.plan.iters(), record.mean_loss(), Some(&record.doubts[..]));
        Status { directory, iteration, iters, loss, scores, doubts }
    }

    /// Returns the directory of the training on rank 0; `None` on other ranks.
    fn directory(&self) -> Option<&Path> {
        self.files.as_ref().map(|files| files.directory.path.as_path())
    }

    /// Runs one step. Returns its log entry, and a signal if one was received before the last step.
    fn step(&mut self, iteration: u64, progress: &Progress) -> Result<(LogEntry, Option<Signal>), Failure> {
        // The log at a checkpoint must cover the sites of all steps before it.
        let sampled = self.recorder.samples(iteration) || self.plan.saves(iteration);
        self.run.observe(if sampled || self.plan.trace.is_some() { Detail::Full } else { Detail::Counts });
        if let Some(times) = &mut self.times {
            times.before(&mut *self.run)?;
        }
        let (start, before) = (Instant::now(), self.run.traffic());
        let outcome = self.run.step()?;
        let seconds = start.elapsed().as_secs_f64();
        if let Some(path) = self.resumed.take().filter(|_| self.files.is_some()) {
            warn_of_unused_sites(&path, &self.run.unused_restored_sites());
        }
        let table = self.times.as_mut().map(|times| times.after(&mut *self.run, seconds)).transpose()?.flatten();
        progress.set_message(format!("loss {:.4}", outcome.loss));
        progress.inc(1);
        // Asked for once, so that the log of this step and its checkpoint agree; by all ranks, so that they do.
        let signal = self.signals.received_by(self.group)?.filter(|_| iteration < self.plan.iters());
        let (sampled, saves) = (sampled || signal.is_some(), self.plan.saves(iteration) || signal.is_some());
        let losses = self.run.losses();
        let travelled = GradientTraffic::between(self.group, before, self.run.traffic());
        let sites = self.run.sites();
        let (activations, unusable) = (self.run.activations(), self.run.unusable_samples());
        let result = StepResult { outcome: &outcome, losses: &losses, unusable, activations: &activations };
        let mut entry = self.recorder.step(iteration, result, (seconds, travelled), &sites, sampled);
        drop((sites, activations));
        self.recorder.warn_of_samples(&entry);
        self.recorder.warned(iteration, self.run.warning());
        // Measured before an evaluation, whose batches have other sizes.
        let memory = self.run.memory();
        let curve = self.plan.evaluates(iteration);
        if curve && self.data.validation_count().is_some() {
            entry.validation = Some(self.run.evaluate(On::Validation)?);
        }
        if iteration == self.plan.iters() || curve && entry.validation.is_none() {
            entry.scores = Some(self.run.evaluate(On::Test)?);
        }
        self.recorder.scored(&entry);
        let mut keep = || {
            if let Some(files) = &mut self.files {
                files.push(&entry, &outcome, &*self.run)?;
            }
            if !saves {
                return Ok(());
            }
            let content = checkpoints::content(&*self.run, self.plan, &History::from_record(self.recorder.record()))?;
            if let Some(files) = &mut self.files {
                files.save(&content, iteration)?;
            }
            drop(content);
            self.report(entry.scores.clone(), memory)
        };
        let kept = keep();
        kept.map_err(|error: Failure| match self.directory() {
            Some(directory) => error.hint(&resume_hint(directory)),
            None => error,
        })?;
        if self.files.is_none() {
            return Ok((entry, signal));
        }
        if let Some(table) = table {
            progress.suspend(|| output::print(&table))?;
        }
        for (on, scores) in [(On::Validation, &entry.validation), (On::Test, &entry.scores)] {
            if let Some(scores) = scores {
                let examples = self.plan.setup.task().kind().sample_noun();
                let words = Metrics::words(scores.iter());
                let loss = self.recorder.record().mean_loss();
                let loss = loss.map_or_else(|| MISSING_VALUE.to_owned(), |loss| format!("{loss:.4}"));
                let line = format!("step {iteration}: loss {loss}, {words} on {on} {examples}");
                progress.suspend(|| output::print(&layout::fit(&line, layout::width())))?;
            }
        }
        sanity_checks::print_warnings(progress, &self.plan.method, &self.recorder.news());
        Ok((entry, signal))
    }

    /// Writes the report of the training so far, with samples if there are scores.
    fn report(&mut self, scores: Option<Metrics>, memory: MemoryReport) -> Result<(), Failure> {
        if let Some(scores) = scores {
            // Called on all ranks, so that they have compiled the same programs.
            let samples = self.run.samples()?;
            self.recorder.finish(scores, samples, memory, &self.run.unchanged()?);
        }
        let Some(directory) = self.directory() else { return Ok(()) };
        let path = directory.join("report.html");
        let (plan, origin, described) = (self.plan, Origin::here(), Description::from_dataset(self.data));
        let report = Report {
            title: described.title(&plan.setup),
            subject: plan.setup.subject(plan.pixels),
            about: "",
            circumstances: described.circumstances(&plan.setup, plan.pixels, plan.iters(), &[plan.seed], &origin),
            notice: None,
            methods: vec![&plan.method],
            runs: &[self.recorder.record()],
            data: Some(self.data),
            origin: &origin,
            arguments: serde_json::to_value(plan).map_err(|error| Failure::file(&path, error))?,
        };
        let page = report.html() + &report_mark(self.recorder.record().loss.len() as u64);
        output::write(&path, page.as_bytes())
    }
}

/// Returns the command that applies a checkpoint to what its task reads.
fn next_command(task: Task, checkpoint: &Path) -> String {
    let input = match task {
        Task::Segnet | Task::Classify | Task::Detect => " IMAGE",
        Task::Speech => " RECORDING.wav",
        Task::Translate => " LINES.txt",
        Task::Language => " --prompt TEXT",
        Task::Generate => "",
    };
    output::command("predict", checkpoint) + input
}

/// Returns a line with the number of ranks and the bytes sent; empty for a single rank.
fn describe_traffic(group: &Group) -> String {
    let traffic = group.traffic();
    let Traffic { sent_bytes, comm_time, .. } = traffic;
    match group.size() {
        1 => String::new(),
        ranks => format!(
            "{ranks} ranks: {:.1} MB sent by rank 0, {:.1} s in communication and waiting, {:.1} s of them during the \
             backward pass\n",
            sent_bytes as f64 / 1e6,
            comm_time.as_secs_f64(),
            traffic.overlapped_time().as_secs_f64()
        ),
    }
}

/// Returns the hint about the command that resumes the training.
fn resume_hint(directory: &Path) -> String {
    format!("resume with: {}", resume_command(directory))
}

/// Returns the command line that resumes the training, quoted for a shell.
fn resume_command(directory: &Path) -> String {
    output::command("train --resume", directory)
}
