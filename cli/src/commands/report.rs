//! `gradscale report`: the page of a recorded training, of this program or in PyTorch.

use crate::{
    Failure,
    machine::Origin,
    output,
    record::recorded,
    report,
    rule_versions::{LEGACY_HISTORY, spelled},
    trace,
};
use clap::Args;
use gradscale::replay::Step;
use serde_json::json;
use std::{collections::BTreeSet, path::PathBuf};

/// `gradscale report`.
#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Report {
    /// Trace that `gradscale train --trace` or `trace()` of gradscale.torch recorded.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Output file; it may exist only if gradscale wrote it [default: TRACE with the extension .html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const NOTES: &str = "Gradients before and after their scales, scales over time, underflow, magnitudes, skips and repeats \
                     of every site. A trace has neither loss nor scores.";

/// Writes the HTML report of a trace.
///
/// # Errors
/// A trace that cannot be read, or a file that cannot be written.
pub fn run(arguments: &Report) -> Result<(), Failure> {
    let steps = trace::read(&arguments.trace)?;
    let out = arguments.out.clone().unwrap_or_else(|| arguments.trace.with_extension("html"));
    if out == arguments.trace {
        return Err(Failure::file(&out, "is the trace itself; name another file with --out"));
    }
    output::check_own(&out)?;
    let name = arguments.trace.file_name().unwrap_or(arguments.trace.as_os_str()).to_string_lossy();
    let html = page(&name, &steps).map_err(|cause| Failure::file(&arguments.trace, cause))?;
    output::write(&out, html.as_bytes())?;
    output::print(&format!("{}\n", out.display()))
}

/// Returns the HTML page about the trace called `name`.
///
/// # Errors
/// Rows that are none, in words.
pub fn page(name: &str, steps: &[Step]) -> Result<String, String> {
    let method = steps.iter().find_map(|step| step.method.clone()).unwrap_or_else(|| spelled("gs", LEGACY_HISTORY));
    let record = recorded(&method, steps)?;
    let taken = record.loss.len() as u64 - record.skipped_steps;
    let names: BTreeSet<&str> = steps.iter().flat_map(|step| &step.sites).map(|seen| seen.name.as_str()).collect();
    let (skipped, repeats, sites) = (record.skipped_steps, record.repeats, names.len());
    let report = report::Report {
        title: format!("A recorded training, {name}"),
        subject: String::new(),
        about: "",
        notice: None,
        circumstances: format!("{method}: {taken} steps at {sites} sites, {skipped} skipped, {repeats} repeats"),
        methods: vec![&method],
        runs: &[&record],
        data: None,
        origin: &Origin::here(),
        arguments: json!({ "trace": name, "method": method }),
    };
    Ok(report.html())
}
