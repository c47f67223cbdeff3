//! Output files of a training.

use super::{PAGES, Plan, checkpoints::Checkpoints, log::Log, resume_command, resume_hint, tensorboard};
use crate::{
    Failure,
    output::{self, Claim},
    record::LogEntry,
    tasks::TrainingRun,
    trace,
};
use gradscale::StepOutcome;
use std::path::Path;

/// Output files of a training; only rank 0 has them.
pub(super) struct Files {
    pub directory: Claim,
    pub log: Log,
    pub board: tensorboard::Writer,
    pub trace: Option<trace::Writer>,
    pub checkpoints: Checkpoints,
}

impl Files {
    /// Creates the files of a new training, with `first` as its first checkpoint. `trace` is the path as given; the
    /// plan has the absolute one.
    pub fn create(out: Option<&Path>, trace: Option<&Path>, first: &[u8], plan: &Plan) -> Result<Self, Failure> {
        // Data that do not fit were reported before a directory is created.
        let claim = output::claim(out, "train", &PAGES)?;
        let directory = &claim.path;
        output::check_absent(&directory.join("log.jsonl"))?;
        let checkpoints = Checkpoints::new(directory);
        if let Some(there) = checkpoints.list()?.into_values().next() {
            let resume = resume_command(directory);
            let cause = format!(
                "an earlier training is here; resume it with {resume}, or choose another directory \
                                 for --out"
            );
            return Err(Failure::file(&there, cause));
        }
        let trace = trace.map(trace::Writer::create).transpose()?;
        let trace = trace.map(|trace| trace.made_by(&plan.method));
        // Before anything else is written: from here on the directory can be resumed, whatever happens.
        checkpoints.save(first, 0)?;
        let with_hint = |error: Failure| error.hint(&resume_hint(directory));
        let log = Log::create(&directory.join("log.jsonl")).map_err(with_hint)?;
        let board = tensorboard::Writer::create(&directory.join("tensorboard"), 0).map_err(with_hint)?;
        Ok(Self { directory: claim, log, board, trace, checkpoints })
    }

    /// Writes a finished step to the training's files: trace and log.
    pub fn push(&mut self, entry: &LogEntry, outcome: &StepOutcome, run: &dyn TrainingRun) -> Result<(), Failure> {
        if let Some(trace) = &mut self.trace {
            trace.push_repeated(entry.iteration, run.attempts())?;
            let activation = trace::overflowed_activation(outcome.skipped.as_ref(), run.activations());
            trace.push(entry.iteration, entry.skipped.is_some(), activation, run.sites(), run.operands())?;
        }
        self.log.push(entry)?;
        self.board.push(entry)
    }

    /// Saves a checkpoint of the training after the last step.
    pub fn save(&mut self, content: &[u8], iteration: u64) -> Result<(), Failure> {
        // The log first: a checkpoint never knows of steps that the log does not.
        self.log.sync()?;
        self.board.sync()?;
        self.checkpoints.save(content, iteration)
    }
}
