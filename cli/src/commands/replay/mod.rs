//! `gradscale replay`: evaluates other methods on the recorded gradients of a training.

use crate::{
    Failure,
    output::{self, layout},
    rule_versions::{LEGACY_HISTORY, spelled},
    trace::{self, Step},
};
use clap::Args;
use gradscale::{
    Layers, Method, Scaling,
    gradscale_core::amp::Level,
    replay::{self, Summary, Total},
};
use serde::de::IgnoredAny;
use std::{collections::BTreeMap, path::PathBuf};

/// `gradscale replay`.
#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// Trace that `gradscale train --trace` or `trace()` of gradscale.torch recorded.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// fp16, fixed:SCALE, dynamic, dynamic:N, logmax, delayed, amax[:history=N],
    /// gs[:exact|paper|paper-literal|authors][,OPTION=VALUE …] [default: the method of the recorded training;
    /// gs,history=0 for older traces without a method]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Output file with a JSON line for every step: iteration, whether the step is skipped, and for each site exponent,
    /// flushed share and subnormal share. Repeated attempts precede their step and are marked. The file may exist only
    /// if replay wrote it.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Replays a trace and prints a table.
///
/// # Errors
/// A trace that cannot be read, a method that it is not enough for, a file that cannot be written.
pub fn run(arguments: &Replay) -> Result<(), Failure> {
    let read = |text: &str, steps: u64| {
        let read = Method::for_steps(text, steps).map_err(|error| Failure::at("--method", error));
        read.map(|method| (text.to_owned(), method))
    };
    // The method is parsed before the file is read.
    arguments.method.as_deref().map(|text| read(text, 1)).transpose()?;
    if let Some(path) = &arguments.out {
        output::check_replaceable(path, is_replay)?;
    }
    let mut steps = trace::read(&arguments.trace)?;
    let count = steps.len() as u64;
    let (name, method) = match &arguments.method {
        Some(asked) => read(asked, count)?,
        None => read(
            &steps.iter().find_map(|step| step.method.clone()).unwrap_or_else(|| spelled("gs", LEGACY_HISTORY)),
            count,
        )?,
    };
    if method.amp.level() == Level::O0 && method.layers == Layers::none() {
        let steps = steps.iter().filter(|step| !step.repeated).count();
        let text =
            format!("{name}: nothing is cast to f16, so nothing is flushed in {steps} steps and none is skipped\n");
        if let Some(path) = &arguments.out {
            return Err(Failure::file(path, format!("{name} has no cast sites to write")));
        }
        return output::print(&text);
    }
    replay::keep_weights(&mut steps, method.weight_gradients)
        .map_err(|cause| Failure::file(&arguments.trace, cause))?;
    let (table, lines) = play(&name, method.scaling, &steps).map_err(|cause| Failure::file(&arguments.trace, cause))?;
    if let Some(path) = &arguments.out {
        output::write(path, &lines)?;
    }
    output::print(&table)
}

/// Returns true if a file begins as the output of a replay, and not as a trace, whose sites have more fields.
fn is_replay(start: &[u8]) -> bool {
    const FIELDS: [&str; 5] = ["alpha", "gamma", "name", "next", "subnormal_share"];
    let start = String::from_utf8_lossy(start);
    let Some((_, sites)) = start.split_once("\"sites\":[") else { return false };
    // The first site is enough, because a line of a large network does not fit the beginning.
    let first = serde_json::Deserializer::from_str(sites).into_iter::<BTreeMap<String, IgnoredAny>>().next();
    first.is_some_and(|site| site.is_ok_and(|site| site.keys().eq(FIELDS)))
}

/// Replays steps under a schedule or rule called `name`, and returns the table and a JSON line for each step.
///
/// # Errors
/// Rows that are none, or without the operands that a rule needs, in words.
pub fn play(name: &str, scaling: Scaling, steps: &[Step]) -> Result<(String, Vec<u8>), String> {
    let (played, summary) = replay::play(scaling, steps)?;
    let mut lines = Vec::new();
    for played in &played {
        serde_json::to_writer(&mut lines, played).map_err(|error| error.to_string())?;
        lines.push(b'\n');
    }
    let taken = steps.iter().filter(|step| !step.repeated).count();
    Ok((table(name, taken, &summary), lines))
}

fn table(method: &str, steps: usize, summary: &Summary) -> String {
    let Summary { skipped, repeats, .. } = summary;
    let heads = ["site", "scale, first", "last", "flushed, mean %", "worst %", "subnormal, mean %"].map(str::to_owned);
    let row = |(name, site): (&String, &Total)| {
        let mean = |sum: f64| 100.0 * sum / site.steps.max(1) as f64;
        vec![
            name.clone(),
            format!("2^{}", site.first),
            format!("2^{}", site.last),
            format!("{:.4}", mean(site.flushed)),
            format!("{:.4}", 100.0 * site.worst),
            format!("{:.3}", mean(site.subnormal)),
        ]
    };
    let rows: Vec<Vec<String>> = summary.sites.iter().map(row).collect();
    let table = layout::table(&heads, &rows, layout::width());
    format!("{method}: {skipped} of {steps} steps skipped, {repeats} repeats\n\n{table}")
}
