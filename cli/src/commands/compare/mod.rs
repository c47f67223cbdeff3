//! `gradscale compare`: one network, several methods.

mod arguments;
mod finished;
mod results;
mod table;
mod text;

pub use arguments::Compare;

use super::train::signals::{Signal, Signals};
use crate::{
    Failure,
    machine::Origin,
    output::{self, Claim, Counter, Progress, layout},
    record::{LogEntry, Record, Recorder},
    report::{self, Report},
    sanity_checks,
    setup::CHAOS,
    tasks::{Dataset, DistributedOptions, On, TrainingConfig, open},
};
use clap::{Args, Command, FromArgMatches};
use finished::{Beginning, Finished, Key};
use gradscale::{
    Method,
    gradscale_core::{amp::Level, stats::Detail},
};
use results::{Case, Results};
use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Name of the results for programs.
const RESULTS: &str = "results.json";
/// Files that are written again while runs finish.
const PAGES: [&str; 2] = ["report.html", "table.md"];

/// Trains by all methods and seeds, and writes the results; or resumes that. `given` is the command line.
///
/// # Errors
/// Data that cannot be read, a device that fails, results that cannot be written.
pub fn run(arguments: &Compare, given: &[OsString]) -> Result<ExitCode, Failure> {
    output::set_json(arguments.json);
    match &arguments.resume {
        Some(directory) => resume(directory, arguments.json),
        None => begin(arguments, Beginning::here(given)?),
    }
}

fn begin(arguments: &Compare, mut beginning: Beginning) -> Result<ExitCode, Failure> {
    let parts = load(arguments)?;
    let directory = output::claim(arguments.out.as_deref(), "compare", &PAGES)?;
    finished::check_absent(&directory.path)?;
    output::check_absent(&directory.path.join(RESULTS))?;
    beginning.data_files = parts.iter().map(|part| part.data.notes().files).collect();
    let finished = Finished::create(&directory.path, &beginning)?;
    compare(&parts, &directory, finished, arguments.json)
}

/// Resumes a comparison that was interrupted. A complete one is not changed.
fn resume(directory: &Path, json: bool) -> Result<ExitCode, Failure> {
    if !directory.is_dir() {
        return Err(Failure::file(directory, "no such directory"));
    }
    let (runs, results) = (directory.join(finished::NAME), directory.join(RESULTS));
    if !runs.exists() {
        if !results.exists() {
            return Err(Failure::file(directory, "no interrupted comparison to resume"));
        }
        // Finished runs are deleted after the results are complete.
        output::print(&format!("{}: complete; {}\n", directory.display(), directory.join("report.html").display()))?;
        return print_summary(directory, json);
    }
    let directory = Claim::continued(directory, &PAGES)?;
    let (finished, beginning) = Finished::resume(&directory.path)?;
    for cause in beginning.differences(&Origin::here()) {
        output::warn(&Failure::file(&directory.path, cause));
    }
    let arguments = parsed(&beginning).map_err(|cause| Failure::file(&runs, cause))?;
    let json = json || arguments.json;
    output::set_json(json);
    let parts = load(&arguments)?;
    beginning.check_data(parts.iter().map(|part| (part.arguments.setup.data.as_deref(), part.data.notes().files)))?;
    compare(&parts, &directory, finished, json)
}

/// Prints the results of a complete comparison without time series, if `--json` was given.
fn print_summary(directory: &Path, json: bool) -> Result<ExitCode, Failure> {
    if json {
        let path = directory.join(RESULTS);
        let bytes = fs::read(&path).map_err(|error| Failure::file(&path, error))?;
        let results = serde_json::from_slice(&bytes).map_err(|error| Failure::file(&path, error))?;
        output::print_json(&results::summarize(directory, &results))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the arguments of a comparison that an earlier process began, with paths that are valid here.
fn parsed(beginning: &Beginning) -> Result<Compare, String> {
    // The first argument is the command, in the place where clap expects the program.
    let read = Compare::augment_args(Command::new("compare")).try_get_matches_from(&beginning.arguments);
    let read = read.and_then(|matches| Compare::from_arg_matches(&matches));
    let mut arguments = read.map_err(|error| error.to_string())?;
    for path in [&mut arguments.setup.data, &mut arguments.setup.reading.features].into_iter().flatten() {
        *path = beginning.directory.join(&*path);
    }
    Ok(arguments)
}

/// Returns the command that resumes a comparison.
fn resume_command(directory: &Path) -> String {
    output::command("compare --resume", directory)
}

/// Part of a comparison: its arguments with all defaults, and its data.
struct Part {
    arguments: Compare,
    data: Box<dyn Dataset>,
}

impl Part {
    /// Returns the number of runs of the part.
    fn runs(&self) -> usize {
        self.arguments.all_seeds().len() * self.arguments.methods.0.len()
    }
}

/// Returns the parts of a comparison, with their data.
fn load(arguments: &Compare) -> Result<Vec<Part>, Failure> {
    let loaded = |mut case: Compare| {
        case.setup.amp.check(case.setup.chosen.network()?)?;
        let data = case.setup.load(case.seed)?;
        data.parts().iter().try_for_each(|line| output::print(&format!("{}\n", Failure::plain(line))))?;
        if arguments.setup.batch.is_none()
            && let Some(line) = case.setup.fit_batch(&*data, 1)
        {
            output::print(&format!("{line}\n"))?;
        }
        let case = case.with_epochs(arguments, &*data)?;
        // Data that do not fit are reported before a directory is created.
        data.check(&case.setup.settings(case.divisor(), case.iters)?)?;
        Ok(Part { arguments: case, data })
    };
    arguments.cases()?.into_iter().map(loaded).collect()
}

/// Minimum time between two writes of the results. Pages grow with the runs, so that writing them after each of many
/// short runs would take longer than training; half a minute is short for a reader who waits.
const WRITE_INTERVAL: Duration = Duration::from_secs(30);

/// Signal that stopped a comparison, and the last step before it.
struct Stop {
    signal: Signal,
    /// Step, method and seed, as a phrase.
    position: String,
}

/// Trains all runs that are not finished yet, and writes the results.
fn compare(parts: &[Part], claim: &Claim, mut finished: Finished, json: bool) -> Result<ExitCode, Failure> {
    let directory = &claim.path;
    let resume_hint = format!("resume with: {}", resume_command(directory));
    let mut results = Results::new(parts.iter().map(Part::runs).sum());
    let ended = train_all(parts, directory, &mut finished, &mut results);
    // Also after an error or a signal, because the last runs may have come within the interval.
    let written = if results.finished() == 0 { Ok(()) } else { write(directory, &results) };
    let stop = ended.and_then(|stop| written.map(|()| stop)).map_err(|error| error.hint(&resume_hint))?;
    if let Some(Stop { signal, position }) = stop {
        let kept = format!("stopped at {position}; {} of {} runs are kept", results.finished(), results.planned);
        output::warn(&Failure::file(directory, kept).hint(&resume_hint));
        return Ok(signal.exit_code());
    }
    finished.delete()?;
    output::print(&format!(
        "\n{}\n{}\n",
        text::text(&results, layout::width()),
        directory.join("report.html").display()
    ))?;
    print_summary(directory, json)
}

/// Trains all runs that are not finished yet, and adds them to the results. Returns the signal that stopped it, if one
/// did.
fn train_all<'a>(
    parts: &'a [Part], directory: &Path, finished: &mut Finished, results: &mut Results<'a>,
) -> Result<Option<Stop>, Failure> {
    let signals = Signals::listen()?;
    let progress = Progress::new(parts.iter().map(|part| part.arguments.iters * part.runs() as u64).sum());
    let mut written: Option<Instant> = None;
    for (part, Part { arguments, data }) in parts.iter().enumerate() {
        let data = &**data;
        let case = Case::new(arguments, data);
        let passes = case.described.passes(&arguments.setup, arguments.iters);
        let about = layout::fit(&case.title(), layout::width()) + &layout::fit(&passes, layout::width());
        progress.suspend(|| output::print(&about))?;
        results.cases.push(case);
        let seeds = arguments.all_seeds();
        for (at_seed, &seed) in seeds.iter().enumerate() {
            for (at_method, (name, method)) in arguments.methods.0.iter().enumerate() {
                let counter = |noun, at: usize, of: usize| Counter { noun, at: at as u64 + 1, of: of as u64 };
                let counters = [
                    counter("part", part, parts.len()),
                    counter("method", at_method, arguments.methods.0.len()),
                    counter("seed", at_seed, seeds.len()),
                ];
                let stop = |signal, step| Stop { signal, position: format!("step {step} of {name}, seed {seed}") };
                let key = Key { part, method: name.clone(), seed };
                let (record, is_new) = match finished.result(&key) {
                    Some(record) => {
                        progress.skip(arguments.iters);
                        (record, false)
                    }
                    None => match train(arguments, data, (name, method), seed, (&progress, &counters), &signals)? {
                        Ended::Finished(record) => (*record, true),
                        Ended::Stopped { signal, step } => {
                            progress.finish_and_clear();
                            return Ok(Some(stop(signal, step)));
                        }
                    },
                };
                progress.suspend(|| output::print(&layout::fit(&table::line(&record), layout::width())))?;
                if is_new {
                    finished.push(key, &record)?;
                }
                let steps = record.loss.len() as u64;
                if let Some(case) = results.cases.last_mut() {
                    case.runs.push(record);
                }
                // A signal during the last step or the evaluation does not discard their run.
                if let Some(signal) = signals.received().filter(|_| !results.is_complete()) {
                    progress.finish_and_clear();
                    return Ok(Some(stop(signal, steps)));
                }
                // The caller writes the last run.
                if is_new && !results.is_complete() && written.is_none_or(|written| written.elapsed() >= WRITE_INTERVAL)
                {
                    write(directory, results)?;
                    written = Some(Instant::now());
                }
            }
        }
    }
    progress.finish_and_clear();
    Ok(None)
}

/// Writes the pages for readers, and last the results for programs, which say whether all is complete.
fn write(directory: &Path, results: &Results<'_>) -> Result<(), Failure> {
    let notice = results.notice(directory);
    output::write(&directory.join("table.md"), table::table(results, notice.as_deref()).as_bytes())?;
    let runs: Vec<Vec<&Record>> = results.cases.iter().map(|case| case.runs.iter().collect()).collect();
    let pages = results.cases.iter().zip(&runs).map(|(case, runs)| report_of(case, runs, &results.origin));
    let mut reports = pages.collect::<Result<Vec<_>, Failure>>()?;
    if let Some(first) = reports.first_mut() {
        first.notice = notice;
    }
    output::write(&directory.join("report.html"), report::html(&reports).as_bytes())?;
    let path = directory.join(RESULTS);
    let mut json = serde_json::to_vec_pretty(results).map_err(|error| Failure::file(&path, error))?;
    json.push(b'\n');
    output::write(&path, &json)
}

fn report_of<'a>(case: &'a Case<'_>, runs: &'a [&'a Record], origin: &'a Origin) -> Result<Report<'a>, Failure> {
    Ok(Report {
        title: case.title(),
        subject: case.subject(),
        about: case.about(),
        circumstances: case.circumstances(origin),
        notice: None,
        methods: case.methods().collect(),
        runs,
        data: Some(case.data),
        origin,
        arguments: serde_json::to_value(case.arguments).map_err(|error| Failure::at("report.html", error))?,
    })
}

/// End of a run.
enum Ended {
    Finished(Box<Record>),
    /// A signal came after this step.
    Stopped {
        signal: Signal,
        step: u64,
    },
}

/// Trains a network with one method and one seed, until the last step or a signal. `counters` are those of the run among
/// all.
fn train(
    arguments: &Compare, data: &dyn Dataset, (name, method): (&str, &Method), seed: u64,
    (progress, counters): (&Progress, &[Counter]), signals: &Signals,
) -> Result<Ended, Failure> {
    let settings = arguments.setup.settings(arguments.divisor(), arguments.iters)?;
    let method = arguments.setup.amp.apply_to(method.clone());
    let stores_half = method.amp.level() != Level::O0;
    let (device, threads) = (arguments.setup.device(), arguments.threads);
    let (weights, parts, together, perturbed) = (None, None, DistributedOptions::alone(), name == CHAOS);
    let opening = TrainingConfig { device, threads, settings, method, seed, weights, perturbed, parts, together };
    let mut run = open(data, opening)?;
    let mut recorder = Recorder::new(name, seed, arguments.iters, data.classes());
    let about = format!("{name}, seed {seed}");
    let mut last = None;
    for iteration in 1..=arguments.iters {
        let sampled = recorder.samples(iteration);
        run.observe(if sampled { Detail::Full } else { Detail::Counts });
        let start = Instant::now();
        let outcome = match run.step() {
            Ok(outcome) => outcome,
            Err(error) => {
                // A method that cannot train is a result too.
                progress.skip(arguments.iters - iteration + 1);
                return Ok(Ended::Finished(Box::new(recorder.failed(&error))));
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let losses = run.losses();
        let mut entry = recorder.step(iteration, (&outcome, &losses), (seconds, None), &run.sites(), sampled);
        recorder.warned(iteration, run.warning());
        sanity_checks::print_warnings(progress, &about, &recorder.news());
        let step = [Counter { noun: "step", at: iteration, of: arguments.iters }];
        progress.set_counters(&[counters, &step].concat());
        let [skipped, repeated] = [recorder.skipped(), recorder.repeats()];
        let loss = outcome.loss;
        progress.set_message(format!("{name}: loss {loss:.4}, {skipped} skipped, {repeated} repeated"));
        progress.inc(1);
        // After the last step there is only the evaluation, which takes less time than the run would take again.
        if let Some(signal) = signals.received().filter(|_| iteration < arguments.iters) {
            return Ok(Ended::Stopped { signal, step: iteration });
        }
        if iteration < arguments.iters && arguments.eval_every != 0 && iteration.is_multiple_of(arguments.eval_every) {
            let metrics = run.evaluate(On::Validation)?;
            match data.validation_count() {
                Some(_) => entry.validation = Some(metrics),
                None => entry.scores = Some(metrics),
            }
            recorder.scored(&entry);
        }
        last = Some(entry);
    }
    // Measured before the evaluation, whose batches have other sizes.
    let memory = run.memory();
    let metrics = run.evaluate(On::Test)?;
    if let Some(last) = last {
        let validation = match data.validation_count().filter(|_| arguments.eval_every != 0) {
            Some(_) => Some(run.evaluate(On::Validation)?),
            None => None,
        };
        recorder.scored(&LogEntry { scores: Some(metrics.clone()), validation, ..last });
    }
    let (samples, unchanged) = (run.samples()?, run.unchanged()?);
    // Measured last: it takes another batch, and leaves gradients that no step takes.
    if stores_half {
        recorder.gradient_errors(run.gradient_errors()?);
    }
    recorder.finish(metrics, samples, memory, &unchanged);
    sanity_checks::print_warnings(progress, &about, &recorder.news());
    Ok(Ended::Finished(Box::new(recorder.done())))
}
