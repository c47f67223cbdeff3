//! `gradscale compare`: one network, several methods.

mod arguments;
mod finished;
mod results;
mod run;
mod runs;
mod table;
mod text;

pub use arguments::Compare;

use crate::{
    Failure,
    machine::Origin,
    output::{self, Claim, layout},
    record::Record,
    report::{self, Report},
    tasks::Dataset,
};
use clap::{Args, Command, FromArgMatches};
use finished::{Beginning, Finished};
use results::{Case, Results};
use runs::Stop;
use std::{ffi::OsString, fs, path::Path, process::ExitCode};

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
        let methods = case.methods.0.iter().map(|(name, method)| (name.as_str(), method));
        case.setup.amp.check(case.setup.chosen.network()?, methods)?;
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

/// Trains all runs that are not finished yet, and writes the results.
fn compare(parts: &[Part], claim: &Claim, mut finished: Finished, json: bool) -> Result<ExitCode, Failure> {
    let directory = &claim.path;
    let resume_hint = format!("resume with: {}", resume_command(directory));
    let mut results = Results::new(parts.iter().map(Part::runs).sum());
    let ended = runs::train_all(parts, directory, &mut finished, &mut results);
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
