//! `gradscale replay`: what another schedule would have made of a training's gradients, without training again.
//!
//! Rows are kept in absolute exponents, so what flushes at any other exponent can be read off their histograms. The
//! paper's rules decide from operands of products; a trace has these too, and they move with the exponents that are
//! played. What cannot be seen: values that the recorded training had already flushed or lost, and how weights would
//! have moved.

mod player;
mod rules;
pub(crate) mod shift;

use crate::{
    Failure, output,
    rule::{BEFORE, spelled},
    trace::{self, Seen, Step},
};
use clap::Args;
use gradscale::{Method, Scaling, core::amp::Precision};
use player::{Player, Summary};
use std::{fmt::Write, path::PathBuf};

/// `gradscale replay`.
#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// A trace that `gradscale train --trace` has recorded.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// fp16, fixed:SCALE, dynamic, dynamic:N, logmax, delayed, gs[:exact|paper|paper-literal|authors][,OPTION=VALUE …]
    /// [default: the method that made the trace; for older traces, which do not say, gs,history=0]
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Writes every step: JSON lines of iteration, whether it would be skipped, and for each site exponent, share
    /// flushed and share of subnormals. Attempts that would be repeated come before their step, and are marked.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Replays a trace and prints a table.
///
/// # Errors
/// A trace that cannot be read, a method that it is not enough for, a file that cannot be written.
pub fn run(arguments: &Replay) -> Result<(), Failure> {
    let read = |text: &str| {
        text.parse::<Method>().map_err(|error| Failure::at("--method", error)).map(|method| (text.to_owned(), method))
    };
    // What is asked for is looked at before the file.
    let asked = arguments.method.as_deref().map(read).transpose()?;
    let mut steps = trace::read(&arguments.trace)?;
    let (name, method) = match asked {
        Some(asked) => asked,
        None => read(&steps.iter().find_map(|step| step.method.clone()).unwrap_or_else(|| spelled("gs", BEFORE)))?,
    };
    keep_weights(&mut steps, method.weight_gradients).map_err(|cause| Failure::file(&arguments.trace, cause))?;
    let (table, lines) = play(&name, method.scaling, &steps).map_err(|cause| Failure::file(&arguments.trace, cause))?;
    if let Some(path) = &arguments.out {
        output::write(path, &lines)?;
    }
    output::print(&table)
}

/// Leaves out the sites of weight gradients where the method keeps these in f32.
///
/// # Errors
/// A trace without them for a method that has them in half.
fn keep_weights(steps: &mut [Step], weight_gradients: Precision) -> Result<(), String> {
    match weight_gradients {
        Precision::Single => steps.iter_mut().for_each(|step| step.sites.retain(|seen| !seen.is_of_weights())),
        Precision::Half if steps.iter().any(|step| step.sites.iter().any(Seen::is_of_weights)) => {}
        Precision::Half => {
            return Err("has no weight gradients in half; record it with a method with wgrad=half".to_owned());
        }
    }
    Ok(())
}

/// Steps under a schedule or rule called `name`: the table, and a JSON line for each step.
///
/// # Errors
/// Rows that are none, or without the operands that a rule needs, in words.
pub fn play(name: &str, scaling: Scaling, steps: &[Step]) -> Result<(String, Vec<u8>), String> {
    let mut player = Player::new(scaling);
    let mut lines = Vec::new();
    let (mut taken, mut attempts) = (0, 0);
    for step in steps {
        // What an attempt that overflowed saw behind the overflow is nothing; the batch follows again.
        if step.repeated {
            attempts += 1;
            continue;
        }
        for played in player.step(step, std::mem::take(&mut attempts))? {
            serde_json::to_writer(&mut lines, &played).map_err(|error| error.to_string())?;
            lines.push(b'\n');
        }
        taken += 1;
    }
    Ok((table(name, taken, &player.summary()), lines))
}

fn table(method: &str, steps: usize, summary: &Summary) -> String {
    let Summary { skipped, repeats, .. } = summary;
    let mut text = format!("{method}: {skipped} of {steps} steps skipped, {repeats} repeats\n\n");
    writeln!(text, "| site | scale, first | last | flushed, mean % | worst % | subnormal, mean % |").ok();
    writeln!(text, "|---|---|---|---|---|---|").ok();
    for (name, site) in &summary.sites {
        writeln!(
            text,
            "| {name} | 2^{} | 2^{} | {:.4} | {:.4} | {:.3} |",
            site.first,
            site.last,
            100.0 * site.flushed / site.steps.max(1) as f64,
            100.0 * site.worst,
            100.0 * site.subnormal / site.steps.max(1) as f64,
        )
        .ok();
    }
    text
}
