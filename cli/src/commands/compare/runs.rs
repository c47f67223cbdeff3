//! All runs of a comparison, one after another or several at a time.

use super::{
    Part,
    finished::{Finished, Key},
    results::{Case, Results},
    run::{self, Ended, Run},
    table, write,
};
use crate::{
    Failure,
    commands::train::signals::{Signal, Signals},
    output::{self, Progress, layout},
    parallel,
    record::Record,
};
use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// Minimum time between two writes of the results. Pages grow with the runs, so that writing them after each of many
/// short runs would take longer than training; half a minute is short for a reader who waits.
const WRITE_INTERVAL: Duration = Duration::from_secs(30);

/// Signal that stopped a comparison, and the last step before it.
pub struct Stop {
    pub signal: Signal,
    /// Step, method and seed, as a phrase.
    pub position: String,
}

/// Trains all runs that are not finished yet, and adds them to the results. Returns the signal that stopped it, if one
/// did.
///
/// # Errors
/// A run that fails, after those that train at the same time; results that cannot be written.
pub fn train_all<'a>(
    parts: &'a [Part], directory: &Path, finished: &mut Finished, results: &mut Results<'a>,
) -> Result<Option<Stop>, Failure> {
    let signals = Signals::listen()?;
    let runs = run::plan(parts);
    let progress = Progress::new(runs.iter().map(Run::steps).sum());
    let records: Vec<Option<Record>> = runs.iter().map(|run| finished.result(&run.key)).collect();
    runs.iter().zip(&records).filter(|(_, record)| record.is_some()).for_each(|(run, _)| progress.skip(run.steps()));
    let missing: Vec<usize> = (0..runs.len()).filter(|&i| records[i].is_none()).collect();
    let (mut ordered, shown) = (Ordered { runs: &runs, records, at: 0 }, AtomicUsize::new(0));
    let jobs = parts.iter().map(|part| part.arguments.jobs()).max().unwrap_or(1).min(runs.len());
    // The first in the order of the results counts, so that a message does not depend on the speed of threads.
    let mut failure: Option<(usize, Failure)> = None;
    let mut stop: Option<(usize, Stop)> = None;
    let position = |index: usize, step: u64| {
        let Key { method, seed, .. } = &runs[index].key;
        format!("step {step} of {method}, seed {seed}")
    };
    let mut last = "the start".to_owned();
    let mut written: Option<Instant> = None;
    let work = |at: usize| {
        // A signal between two runs starts no other.
        let index = missing[at];
        let is_shown = || shown.load(Ordering::Relaxed) == index;
        signals.received().is_none().then(|| runs[index].train(&progress, is_shown, &signals))
    };
    ordered.release(results, &progress)?;
    shown.store(ordered.at, Ordering::Relaxed);
    parallel::run(missing.len(), jobs, work, |at, ended| {
        let index = missing[at];
        match ended {
            Some(Ok(Ended::Finished(record))) => {
                finished.push(runs[index].key.clone(), &record)?;
                last = position(index, record.loss.len() as u64);
                ordered.records[index] = Some(*record);
                ordered.release(results, &progress)?;
                shown.store(ordered.at, Ordering::Relaxed);
                // The caller writes the last run.
                if !results.is_complete() && written.is_none_or(|written| written.elapsed() >= WRITE_INTERVAL) {
                    write(directory, results)?;
                    written = Some(Instant::now());
                }
            }
            Some(Ok(Ended::Stopped { signal, step })) => {
                first(&mut stop, index, Stop { signal, position: position(index, step) });
            }
            Some(Err(error)) => first(&mut failure, index, error),
            None => {}
        }
        Ok::<_, Failure>(stop.is_none() && failure.is_none())
    })?;
    progress.finish_and_clear();
    ordered.release_all(results, &progress)?;
    if let Some((_, failure)) = failure {
        return Err(failure);
    }
    // A signal during the last step or the evaluation of a run does not discard it, and is answered after it.
    let between =
        || signals.received().filter(|_| !results.is_complete()).map(|signal| Stop { signal, position: last });
    Ok(stop.map(|(_, stop)| stop).or_else(between))
}

/// Keeps the value with the smaller index.
fn first<T>(kept: &mut Option<(usize, T)>, index: usize, value: T) {
    if kept.as_ref().is_none_or(|(other, _)| index < *other) {
        *kept = Some((index, value));
    }
}

/// Finished runs on their way to the results, which have them in the order of the plan.
struct Ordered<'r, 'a> {
    runs: &'r [Run<'a>],
    /// Results of finished runs that are not among the results yet.
    records: Vec<Option<Record>>,
    /// Index of the first run that is not among the results.
    at: usize,
}

impl<'a> Ordered<'_, 'a> {
    /// Moves finished runs to the results and prints their lines, up to the first that is not finished.
    fn release(&mut self, results: &mut Results<'a>, progress: &Progress) -> Result<(), Failure> {
        while let Some(run) = self.runs.get(self.at) {
            begin_part(run, results, progress)?;
            let Some(record) = self.records[self.at].take() else { break };
            self.at += 1;
            push(record, results, progress)?;
        }
        Ok(())
    }

    /// Moves all finished runs to the results, those behind one that was stopped, too.
    fn release_all(&mut self, results: &mut Results<'a>, progress: &Progress) -> Result<(), Failure> {
        for (run, record) in self.runs.iter().zip(&mut self.records) {
            if let Some(record) = record.take() {
                begin_part(run, results, progress)?;
                push(record, results, progress)?;
            }
        }
        Ok(())
    }
}

/// Adds the case of a run to the results and prints its title, if it is the first run of its part.
fn begin_part<'a>(run: &Run<'a>, results: &mut Results<'a>, progress: &Progress) -> Result<(), Failure> {
    if results.cases.len() > run.key.part {
        return Ok(());
    }
    let Part { arguments, data } = run.part;
    let case = Case::new(arguments, &**data);
    let passes = case.described.passes(&arguments.setup, arguments.iters);
    let about = layout::fit(&case.title(), layout::width()) + &layout::fit(&passes, layout::width());
    progress.suspend(|| output::print(&about))?;
    results.cases.push(case);
    Ok(())
}

/// Adds a finished run to the last case and prints its line.
fn push(record: Record, results: &mut Results<'_>, progress: &Progress) -> Result<(), Failure> {
    let Some(case) = results.cases.last_mut() else { return Ok(()) };
    let width = case.methods().map(|name| name.chars().count()).max().unwrap_or_default();
    progress.suspend(|| output::print(&layout::fit(&table::line(&record, width), layout::width())))?;
    case.runs.push(record);
    Ok(())
}
