//! `gradscale compare`: one network, several methods.

pub(crate) mod record;
pub(crate) mod table;

use crate::{
    Failure,
    args::Compare,
    doubts,
    machine::Origin,
    output,
    report::Report,
    task::{Data, open},
};
use gradscale::{Method, core::stats::Detail};
use indicatif::ProgressBar;
use record::{Record, Recorder, Results};
use std::{path::Path, time::Instant};

/// Trains by all methods and seeds, and writes the results.
///
/// # Errors
/// Data that cannot be read, a device that fails, results that cannot be written.
pub fn run(arguments: &Compare) -> Result<(), Failure> {
    let arguments = &arguments.resolved();
    let seeds = arguments.all_seeds();
    if let Some(twice) = seeds.iter().enumerate().find(|(i, seed)| seeds[..*i].contains(seed)) {
        return Err(Failure::at("--seeds", format!("{} stands there twice", twice.1)));
    }
    let data = arguments.setup.load(arguments.seed)?;
    // What does not fit is said before a directory is made.
    data.check(arguments.setup.batch())?;
    let directory = output::directory(arguments.out.as_deref(), "compare", "results.json")?;
    let mut results = Results::new(Origin::here(), arguments, &data);
    let runs = seeds.len() * arguments.methods.0.len();
    let bar = output::progress(arguments.iters * runs as u64);
    for &seed in &seeds {
        for (name, method) in &arguments.methods.0 {
            let record = train(arguments, &data, name, method, seed, &bar)?;
            bar.suspend(|| output::print(&format!("{}\n", table::line(&record))))?;
            results.runs.push(record);
            // After each run, so that nothing is lost when a later one fails.
            write(&directory, &results, &data)?;
        }
    }
    bar.finish_and_clear();
    output::print(&format!("\n{}\n{}\n", table::table(&results), directory.join("report.html").display()))
}

fn write(directory: &Path, results: &Results<'_>, data: &Data) -> Result<(), Failure> {
    let path = directory.join("results.json");
    let mut json = serde_json::to_vec_pretty(results).map_err(|error| Failure::file(&path, error))?;
    json.push(b'\n');
    output::write(&path, &json)?;
    output::write(&directory.join("table.md"), table::table(results).as_bytes())?;
    let (arguments, described, origin) = (results.arguments, &results.data, &results.origin);
    let seeds = arguments.all_seeds();
    let report = Report {
        title: table::title(&arguments.setup, arguments.divisor(), described),
        circumstances: table::circumstances(&arguments.setup, arguments.iters, &seeds, described, origin),
        methods: results.methods().collect(),
        runs: &results.runs.iter().collect::<Vec<_>>(),
        data,
        origin,
        arguments: serde_json::to_value(arguments).map_err(|error| Failure::at("report.html", error))?,
    };
    output::write(&directory.join("report.html"), report.html().as_bytes())
}

/// One method, one seed.
fn train(
    arguments: &Compare, data: &Data, name: &str, method: &Method, seed: u64, bar: &ProgressBar,
) -> Result<Record, Failure> {
    let settings = arguments.setup.settings(arguments.divisor());
    let mut run = open((arguments.setup.device(), arguments.threads), data, settings, method, seed, None)?;
    let mut recorder = Recorder::new(name, seed, arguments.iters, data.classes());
    let about = format!("{name}, seed {seed}");
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
        recorder.step(iteration, &outcome, start.elapsed().as_secs_f64(), &run.sites(), sampled);
        doubts::say(bar, &about, &recorder.news());
        let [skipped, repeated] = [recorder.skipped(), recorder.repeats()];
        let loss = outcome.loss;
        bar.set_message(format!("{name}, seed {seed}: loss {loss:.4}, {skipped} skipped, {repeated} repeated"));
        bar.inc(1);
        if iteration < arguments.iters && arguments.eval_every != 0 && iteration.is_multiple_of(arguments.eval_every) {
            recorder.score(iteration, run.evaluate()?);
        }
    }
    // Of training: evaluation comes with batches of other sizes.
    let memory = run.memory();
    let metrics = run.evaluate()?;
    recorder.score(arguments.iters, metrics);
    recorder.finish(metrics, run.samples()?, memory, &run.unchanged()?);
    doubts::say(bar, &about, &recorder.news());
    Ok(recorder.done())
}
