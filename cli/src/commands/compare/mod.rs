//! `gradscale compare`: one network, several methods.

mod arguments;
mod results;
mod table;

pub use arguments::Compare;

use crate::{
    Failure,
    machine::Origin,
    output,
    record::{LogEntry, Record, Recorder},
    report::{self, Report},
    sanity_checks,
    setup::CHAOS,
    tasks::{Dataset, DistributedOptions, On, TrainingConfig, open},
};
use gradscale::{
    Method,
    gradscale_core::{amp::Level, stats::Detail},
};
use indicatif::ProgressBar;
use results::{Case, Results};
use std::{path::Path, time::Instant};

/// Trains by all methods and seeds, and writes the results.
///
/// # Errors
/// Data that cannot be read, a device that fails, results that cannot be written.
pub fn run(arguments: &Compare) -> Result<(), Failure> {
    let mut cases = arguments.cases()?;
    let loaded = |case: &mut Compare| {
        case.setup.amp.check(case.setup.chosen.network()?)?;
        let data = case.setup.load(case.seed)?;
        data.parts().iter().try_for_each(|line| output::print(&format!("{}\n", Failure::plain(line))))?;
        if arguments.setup.batch.is_none()
            && let Some(line) = case.setup.fit_batch(&*data, 1)
        {
            output::print(&format!("{line}\n"))?;
        }
        // Data that do not fit are reported before a directory is created.
        data.check(&case.setup.settings(case.divisor(), case.iters)?)?;
        Ok(data)
    };
    let data = cases.iter_mut().map(loaded).collect::<Result<Vec<Box<dyn Dataset>>, Failure>>()?;
    let directory = output::directory(arguments.out.as_deref(), "compare", "results.json")?;
    let runs: usize = cases.iter().map(|case| case.all_seeds().len() * case.methods.0.len()).sum();
    let bar = output::progress(arguments.iters * runs as u64);
    let mut results = Results { origin: Origin::here(), cases: Vec::new() };
    for (arguments, data) in cases.iter().zip(&data) {
        let data = &**data;
        let case = Case::new(arguments, data);
        bar.suspend(|| output::print(&format!("{}\n", case.title())))?;
        results.cases.push(case);
        for seed in arguments.all_seeds() {
            for (name, method) in &arguments.methods.0 {
                let record = train(arguments, data, name, method, seed, &bar)?;
                bar.suspend(|| output::print(&format!("{}\n", table::line(&record))))?;
                if let Some(case) = results.cases.last_mut() {
                    case.push(record);
                }
                // After each run, so that nothing is lost when a later one fails.
                write(&directory, &results)?;
            }
        }
    }
    bar.finish_and_clear();
    output::print(&format!("\n{}\n{}\n", table::table(&results), directory.join("report.html").display()))
}

fn write(directory: &Path, results: &Results<'_>) -> Result<(), Failure> {
    let path = directory.join("results.json");
    let mut json = serde_json::to_vec_pretty(results).map_err(|error| Failure::file(&path, error))?;
    json.push(b'\n');
    output::write(&path, &json)?;
    output::write(&directory.join("table.md"), table::table(results).as_bytes())?;
    let runs: Vec<Vec<&Record>> = results.cases.iter().map(|case| case.runs.iter().collect()).collect();
    let pages = results.cases.iter().zip(&runs).map(|(case, runs)| report_of(case, runs, &results.origin));
    let reports = pages.collect::<Result<Vec<_>, Failure>>()?;
    output::write(&directory.join("report.html"), report::html(&reports).as_bytes())
}

fn report_of<'a>(case: &'a Case<'_>, runs: &'a [&'a Record], origin: &'a Origin) -> Result<Report<'a>, Failure> {
    Ok(Report {
        title: case.title(),
        subject: case.subject(),
        about: case.about(),
        circumstances: case.circumstances(origin),
        methods: case.methods().collect(),
        runs,
        data: Some(case.data),
        origin,
        arguments: serde_json::to_value(case.arguments).map_err(|error| Failure::at("report.html", error))?,
    })
}

/// Trains a network with one method and one seed, and returns its record.
fn train(
    arguments: &Compare, data: &dyn Dataset, name: &str, method: &Method, seed: u64, bar: &ProgressBar,
) -> Result<Record, Failure> {
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
                bar.inc(arguments.iters - iteration + 1);
                return Ok(recorder.failed(&error));
            }
        };
        let seconds = start.elapsed().as_secs_f64();
        let losses = run.losses();
        let mut entry = recorder.step(iteration, (&outcome, &losses), (seconds, None), &run.sites(), sampled);
        recorder.warned(iteration, run.warning());
        sanity_checks::say(bar, &about, &recorder.news());
        let [skipped, repeated] = [recorder.skipped(), recorder.repeats()];
        let loss = outcome.loss;
        bar.set_message(format!("{name}, seed {seed}: loss {loss:.4}, {skipped} skipped, {repeated} repeated"));
        bar.inc(1);
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
    // Of training: evaluation comes with batches of other sizes.
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
    // Behind all else: it takes another batch, and leaves gradients that no step takes.
    if stores_half {
        recorder.gradient_errors(run.gradient_errors()?);
    }
    recorder.finish(metrics, samples, memory, &unchanged);
    sanity_checks::say(bar, &about, &recorder.news());
    Ok(recorder.done())
}
