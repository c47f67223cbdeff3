//! `gradscale compare`: one network, several methods.

pub(crate) mod record;
pub(crate) mod table;

use crate::{
    Failure,
    args::{Compare, Device, Task},
    data::{Batches, Segmentation},
    machine::Origin,
    output,
    report::Report,
    task::segnet::{Run, Settings},
};
use gradscale::{Cpu, Method};
use indicatif::ProgressBar;
use record::{Record, Recorder, Results};
use std::{path::Path, time::Instant};

/// Trains by all methods and seeds, and writes the results.
///
/// # Errors
/// Data that cannot be read, a device that fails, results that cannot be written.
pub fn run(arguments: &Compare) -> Result<(), Failure> {
    let Task::Segnet = arguments.task;
    let data = match &arguments.data {
        Some(directory) => Segmentation::load(directory)?,
        None => Segmentation::synthetic(arguments.seed),
    };
    // What does not fit is said before a directory is made.
    Batches::new(&data.train, arguments.batch, 0).map_err(|cause| Failure::at("--batch", cause))?;
    let seeds = arguments.all_seeds();
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

fn write(directory: &Path, results: &Results<'_>, data: &Segmentation) -> Result<(), Failure> {
    let path = directory.join("results.json");
    let mut json = serde_json::to_vec_pretty(results).map_err(|error| Failure::file(&path, error))?;
    json.push(b'\n');
    output::write(&path, &json)?;
    output::write(&directory.join("table.md"), table::table(results).as_bytes())?;
    let report = Report {
        title: table::title(results),
        circumstances: table::circumstances(results),
        methods: results.methods().collect(),
        runs: &results.runs,
        data,
        origin: &results.origin,
        arguments: serde_json::to_value(results.arguments).map_err(|error| Failure::at("report.html", error))?,
    };
    output::write(&directory.join("report.html"), report.html().as_bytes())
}

/// One method, one seed.
fn train(
    arguments: &Compare, data: &Segmentation, name: &str, method: &Method, seed: u64, bar: &ProgressBar,
) -> Result<Record, Failure> {
    let Device::Cpu = arguments.device;
    let device = Cpu::new(arguments.threads).map_err(|error| Failure::at("--threads", error))?;
    let settings = Settings { batch: arguments.batch, width: arguments.width, pixels: arguments.pixels };
    let mut run = Run::new(device, data, settings, method.clone(), seed)?;
    let mut recorder = Recorder::new(name, seed, arguments.iters);
    let mut seconds = 0.0;
    for iteration in 1..=arguments.iters {
        let start = Instant::now();
        let outcome = match run.step() {
            Ok(outcome) => outcome,
            Err(error) => {
                // A method that cannot train is a result too.
                bar.inc(arguments.iters - iteration + 1);
                return Ok(recorder.failed(&error, seconds));
            }
        };
        seconds += start.elapsed().as_secs_f64();
        recorder.step(iteration, &outcome, run.trainer());
        bar.set_message(format!("{name}, seed {seed}: loss {:.4}, {} skipped", outcome.loss, recorder.skipped()));
        bar.inc(1);
        if iteration < arguments.iters && arguments.eval_every != 0 && iteration.is_multiple_of(arguments.eval_every) {
            recorder.score(iteration, run.evaluate()?);
        }
    }
    // Of training: evaluation comes with batches of other sizes.
    let memory = run.trainer().memory();
    let metrics = run.evaluate()?;
    recorder.score(arguments.iters, metrics);
    Ok(recorder.done(metrics, run.samples()?, seconds, memory))
}
