//! `gradscale train`: one method, with checkpoints, to be stopped and resumed at any moment.

pub(crate) mod checkpoints;
mod files;
mod gradient_transport;
mod history;
mod log;
mod plan;
mod signals;
mod tensorboard;
mod times;

use crate::{
    Failure,
    machine::Origin,
    metrics::{MISSING_VALUE, Metrics},
    output, ranks,
    record::{Description, GradientTraffic, Recorder},
    report::Report,
    sanity_checks,
    tasks::{Dataset, On, TrainingRun},
    trace,
};
use checkpoints::{Checkpoints, FoundCheckpoint};
use clap::Args;
use files::{Files, lock};
use gradient_transport::{measured, route};
use gradscale::{
    Difference, MemoryReport,
    distributed::{Group, Traffic},
    gradscale_core::stats::Detail,
};
use history::History;
use indicatif::ProgressBar;
use log::Log;
pub(crate) use plan::Plan;
use signals::{Signal, Signals};
use std::{
    fs::File,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};
use times::Times;

/// `gradscale train`.
#[derive(Clone, Debug, Args)]
#[command(after_help = FILES)]
pub struct Train {
    #[command(flatten)]
    plan: Plan,
    /// Resumes from the last intact checkpoint in this directory, with all settings of that training. --iters,
    /// --checkpoint-every, --device and --threads can be changed.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "task", "network", "data", "method", "batch", "width", "lr", "optimizer", "schedule", "weight_decay", "clip", "pixels", "seed", "eval_every", "size", "crop", "ignore", "label", "languages", "pieces", "tokens", "window", "skip_broken", "features", "memory", "amp", "keep_f32", "half", "micro_batches", "exchange", "batch_norm"])]
    resume: Option<PathBuf>,
    /// Directory for checkpoints and log [default: the first of train-1, train-2, … that does not exist]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// TOML file with options of this command, for example iters = 600. Options of the command line override it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ends a training of several ranks after this time without an answer from a rank, which may have died or hang.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    rank_timeout: u64,
    /// Prints, after 13 steps, the time of every kernel launch by the device's clock, with memory traffic, arithmetic
    /// and share of the step. During five steps launches run one after another; results are the same.
    #[arg(long)]
    times: bool,
}

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
    let mut fresh = given.fresh();
    let (setup, network) = fresh.setup.for_data();
    fresh.setup = setup;
    let plan = fresh.begun(group)?;
    let data = load(&plan, group)?;
    let (plan, batch) = plan.with_data(&*data, given)?;
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
    Training { data: &*data, run, plan, recorder, signals, files, group, times }.run(0)
}

/// Loads the data set, and checks that it is the same on all ranks.
fn load(plan: &Plan, group: &Group) -> Result<Box<dyn Dataset>, Failure> {
    if group.size() > 1 {
        group.check_equal("version", env!("CARGO_PKG_VERSION"))?;
        plan.told()?.iter().try_for_each(|(what, told)| group.check_equal(what, &told.to_string()))?;
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
    lock: File,
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
        let lock = lock(directory)?;
        let (found, damaged) = checkpoints.newest()?;
        Ok(Self { found, damaged, checkpoints, lock })
    }
}

fn resume(directory: &Path, arguments: &Train, group: &Group) -> Result<ExitCode, Failure> {
    let given = &arguments.plan;
    let here = (group.rank() == 0).then(|| Here::look(directory)).transpose()?;
    let found = FoundCheckpoint::shared(here.as_ref().map(|here| &here.found), group)?;
    if given.setup.device.is_none() {
        found.check_device()?;
    }
    let plan = found.plan()?.resumed(given)?;
    let asked = plan.iters.is_some();
    let plan = plan.begun(group)?;
    let (iteration, iters) = (found.iteration, plan.iters());
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
    if let Some(Here { damaged, checkpoints, lock, .. }) = here {
        for (path, error) in damaged {
            let aside = output::set_aside(&path)?;
            let instead = format!("renamed to {}; resuming from {} instead", aside.display(), found.path.display());
            output::warn(&error.hint(&instead));
        }
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
        files = Some(Files { directory: directory.to_owned(), log, board, trace, checkpoints, lock });
    }
    if plan.trace.is_some() && iteration < iters {
        run.observe_operands();
    }
    let signals = Signals::listen()?;
    let mut training = Training { data: &*data, run, plan, recorder, signals, files, group, times };
    if iteration >= iters {
        // Of a training that was killed just before its report.
        let memory = training.run.memory();
        training.report(scores, memory)?;
    }
    training.run(iteration)
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
}

impl Training<'_> {
    /// Runs the steps after `iteration`, until the last step or a signal.
    fn run(mut self, iteration: u64) -> Result<ExitCode, Failure> {
        let iters = self.plan.iters();
        if let Some(Files { directory, .. }) = self.files.as_ref().filter(|_| self.group.size() > 1) {
            self.signals.answer(&format!(
                "stopping: the step is finished and saved if the launcher waits long enough (mpirun waits 1 s; --mca \
                 odls_base_sigkill_timeout N sets N s); {}",
                go_on(directory)
            ));
        }
        let bar = if self.files.is_some() { output::progress(iters) } else { ProgressBar::hidden() };
        let bar = bar.with_position(iteration);
        for iteration in iteration + 1..=iters {
            if let Some(signal) = self.step(iteration, &bar)? {
                bar.finish_and_clear();
                let done = format!("stopped and saved after step {iteration} of {iters}");
                if let Some(Files { directory, .. }) = &self.files {
                    output::warn(&Failure::file(directory, done).hint(&go_on(directory)));
                }
                return Ok(signal.exit_code());
            }
        }
        bar.finish_and_clear();
        if let Some(Files { directory, .. }) = &self.files {
            output::print(&format!("{}{}\n", said(self.group), directory.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Runs one step. Returns a signal if one was received before the last step.
    fn step(&mut self, iteration: u64, bar: &ProgressBar) -> Result<Option<Signal>, Failure> {
        // The log at a checkpoint must cover the sites of all steps before it.
        let sampled = self.recorder.samples(iteration) || self.plan.saves(iteration);
        self.run.observe(if sampled || self.plan.trace.is_some() { Detail::Full } else { Detail::Counts });
        if let Some(times) = &mut self.times {
            times.before(&mut *self.run)?;
        }
        let (start, before) = (Instant::now(), self.run.traffic());
        let outcome = self.run.step()?;
        let seconds = start.elapsed().as_secs_f64();
        let table = self.times.as_mut().map(|times| times.after(&mut *self.run, seconds)).transpose()?.flatten();
        bar.set_message(format!("loss {:.4}", outcome.loss));
        bar.inc(1);
        // Asked for once, so that the log of this step and its checkpoint agree; by all ranks, so that they do.
        let signal = self.signals.received_by(self.group)?.filter(|_| iteration < self.plan.iters());
        let (sampled, saves) = (sampled || signal.is_some(), self.plan.saves(iteration) || signal.is_some());
        let losses = self.run.losses();
        let travelled = GradientTraffic::between(self.group, before, self.run.traffic());
        let sites = self.run.sites();
        let mut entry = self.recorder.step(iteration, (&outcome, &losses), (seconds, travelled), &sites, sampled);
        drop(sites);
        self.recorder.warned(iteration, self.run.warning());
        // Of training: evaluation comes with batches of other sizes.
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
                files.push(&entry, &*self.run)?;
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
        kept.map_err(|error: Failure| match &self.files {
            Some(Files { directory, .. }) => error.hint(&go_on(directory)),
            None => error,
        })?;
        if self.files.is_none() {
            return Ok(signal);
        }
        if let Some(table) = table {
            bar.suspend(|| output::print(&table))?;
        }
        for (on, scores) in [(On::Validation, &entry.validation), (On::Test, &entry.scores)] {
            if let Some(scores) = scores {
                let examples = self.plan.setup.task().kind().sample_noun();
                let words = Metrics::words(scores.iter());
                let loss = self.recorder.record().mean_loss();
                let loss = loss.map_or_else(|| MISSING_VALUE.to_owned(), |loss| format!("{loss:.4}"));
                let line = format!("step {iteration}: loss {loss}, {words} on {on} {examples}\n");
                bar.suspend(|| output::print(&line))?;
            }
        }
        sanity_checks::say(bar, &self.plan.method, &self.recorder.news());
        Ok(signal)
    }

    /// Writes the report of the training so far, with samples if there are scores.
    fn report(&mut self, scores: Option<Metrics>, memory: MemoryReport) -> Result<(), Failure> {
        if let Some(scores) = scores {
            // Called on all ranks, so that they have compiled the same programs.
            let samples = self.run.samples()?;
            self.recorder.finish(scores, samples, memory, &self.run.unchanged()?);
        }
        let Some(Files { directory, .. }) = &self.files else { return Ok(()) };
        let path = directory.join("report.html");
        let (plan, origin, described) = (self.plan, Origin::here(), Description::from_dataset(self.data));
        let report = Report {
            title: described.title(&plan.setup),
            subject: plan.setup.subject(plan.pixels),
            about: "",
            circumstances: described.circumstances(&plan.setup, plan.pixels, plan.iters(), &[plan.seed], &origin),
            methods: vec![&plan.method],
            runs: &[self.recorder.record()],
            data: Some(self.data),
            origin: &origin,
            arguments: serde_json::to_value(plan).map_err(|error| Failure::file(&path, error))?,
        };
        output::write(&path, report.html().as_bytes())
    }
}

/// Returns a line with the number of ranks and the bytes sent; empty for a single rank.
fn said(group: &Group) -> String {
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
fn go_on(directory: &Path) -> String {
    format!("resume with: {}", resume_command(directory))
}

/// Returns the command line that resumes the training, quoted for a shell.
fn resume_command(directory: &Path) -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "gradscale".into());
    // A name must not pass for an option.
    let dashed = directory.as_os_str().as_encoded_bytes().starts_with(b"-");
    let directory = if dashed { Path::new(".").join(directory) } else { directory.to_owned() };
    format!("{} train --resume {}", quoted(&program.to_string_lossy()), quoted(&directory.to_string_lossy()))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:+@%=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        assert_eq!(quoted("runs/a-1"), "runs/a-1");
        assert_eq!(quoted("my run"), "'my run'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert!(resume_command(Path::new("-x")).ends_with("train --resume ./-x"));
    }
}
