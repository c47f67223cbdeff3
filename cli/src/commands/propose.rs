//! `gradscale propose`: proposes a fixed loss scale from a recorded trace.

use crate::{
    Failure,
    output::{self, layout},
    trace::{self, Step},
};
use clap::Args;
use gradscale::{
    gradscale_core::{loss_scale::propose_fixed, scaled::Scaled, stats::Stats},
    replay::shift,
};
use std::{collections::BTreeMap, fmt::Write, path::PathBuf};

/// `gradscale propose`.
#[derive(Clone, Debug, Args)]
#[command(after_help = NOTES)]
pub struct Propose {
    /// Trace that `gradscale train --trace` or `trace()` of gradscale.torch recorded.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Percentage of the recorded steps whose largest gradient must fit. The other steps would be skipped.
    #[arg(long, value_name = "P", default_value = "100", value_parser = percentile)]
    percentile: f64,
}

const NOTES: &str = "The proposed scale is the largest power of two at which the largest recorded gradient stays \
                     below 65504, FP16's largest number. The table shows the share of the gradients that each \
                     scale flushes, and the steps that it would skip. Gradients that the recorded training \
                     flushed are unknown, so record a method that flushes little, such as gs.";

fn percentile(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=100.0).contains(share) && *share > 0.0);
    share.ok_or_else(|| "must be a percentage above 0 and at most 100".to_owned())
}

/// Prints the proposed loss scale and the gradients that it is derived from.
///
/// # Errors
/// A trace that cannot be read, or without any gradient but zero.
pub fn run(arguments: &Propose) -> Result<(), Failure> {
    let steps = trace::read(&arguments.trace)?;
    let text = propose(&steps, arguments.percentile, layout::width())
        .map_err(|cause| Failure::file(&arguments.trace, cause))?;
    output::print(&text)
}

/// Largest gradient of a training step, with its site.
#[derive(Clone, Debug)]
struct Largest {
    iteration: u64,
    site: String,
    amax: Scaled<f32>,
    /// Largest exponent of the loss scale at which the gradient does not overflow.
    fits: i32,
}

impl Largest {
    /// Returns log2 of the gradient's true magnitude.
    fn log2(&self) -> f64 {
        f64::from(self.amax.data).log2() - f64::from(self.amax.alpha)
    }
}

/// Shares of the steps, in percent, that the table shows besides the requested one.
const SHARES: [f64; 4] = [100.0, 99.9, 99.0, 90.0];

/// Returns the table of proposed scales, and the scale for a share of the steps, as text of so many columns.
///
/// # Errors
/// Rows that are none, or of zeros only, in words.
pub fn propose(steps: &[Step], percentile: f64, width: usize) -> Result<String, String> {
    let (mut largest, mut rows, mut lost) = (Vec::new(), Vec::new(), 0);
    // An attempt that was repeated is followed by the same batch.
    for step in steps.iter().filter(|step| !step.repeated) {
        let mut of_step: Option<Largest> = None;
        for seen in &step.sites {
            let row = seen.row()?;
            let counts = row.counts();
            // A row with ±∞ or NaN has no usable maximum.
            if counts.non_finite() > 0 {
                lost += 1;
                continue;
            }
            let amax = Scaled::new(counts.amax, row.exponent());
            if let Some(fits) = propose_fixed(amax) {
                let one = Largest { iteration: step.iteration, site: seen.name.clone(), amax, fits };
                of_step = of_step.filter(|known| known.log2() >= one.log2()).or(Some(one));
            }
            rows.push((seen.name.as_str(), row));
        }
        largest.extend(of_step);
    }
    largest.sort_by(|a, b| a.log2().total_cmp(&b.log2()));
    let at = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of steps")]
        let fitting = (share / 100.0 * largest.len() as f64).ceil() as usize;
        largest.get(fitting.clamp(1, largest.len().max(1)) - 1)
    };
    let Some(chosen) = at(percentile) else { return Err("all of its gradients are zero".to_owned()) };
    let mut shares = SHARES.to_vec();
    shares.push(percentile);
    shares.sort_by(|a, b| b.total_cmp(a));
    shares.dedup();
    let mut text = String::new();
    let (count, sites) = (largest.len(), rows.iter().map(|(name, _)| *name).collect::<std::collections::BTreeSet<_>>());
    let without = if lost == 0 { String::new() } else { format!("; {lost} rows with ±∞ or NaN were skipped") };
    writeln!(text, "{count} steps with gradients at {} sites{without}\n", sites.len()).ok();
    let heads = ["steps that fit %", "scale", "skipped", "flushed, all sites %", "flushed, worst site %", "worst site"];
    let (mut shown, mut table) = (Vec::new(), Vec::new());
    for share in shares {
        let Some(scale) = at(share).map(|largest| usable(largest.fits)) else { continue };
        if shown.contains(&scale) && share != percentile {
            continue;
        }
        shown.push(scale);
        let skipped = largest.iter().filter(|largest| largest.fits < scale).count();
        let (all, name, worst) = flushed(&rows, scale);
        table.push(vec![
            share.to_string(),
            format!("2^{scale}"),
            format!("{skipped} of {count}"),
            format!("{all:.3}"),
            format!("{worst:.3}"),
            name.to_owned(),
        ]);
    }
    text += &layout::table(&heads.map(str::to_owned), &table, width);
    let scale = usable(chosen.fits);
    let product = (chosen.log2() + f64::from(scale)).exp2();
    let Largest { iteration, site, .. } = chosen;
    let proposal = format!(
        "fixed:2^{scale}: the largest gradient of {percentile} % of the steps, 2^{:.1} at {site} in step {iteration}, \
         becomes {product:.0}; FP16 holds up to 65504, and 2^{} leaves two more binades of headroom",
        chosen.log2(),
        usable(scale - 2),
    );
    Ok(text + "\n" + &layout::wrap("", &proposal, width))
}

/// Clamps an exponent to the range of a loss scale.
fn usable(exponent: i32) -> i32 {
    exponent.clamp(-126, 126)
}

/// Returns the percentage of non-zero values that a scale flushes, then name and percentage of the worst site.
fn flushed<'a>(rows: &[(&'a str, Stats)], scale: i32) -> (f64, &'a str, f64) {
    let mut sites: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for (name, row) in rows {
        let moved = shift(row, scale);
        let [part, whole] = sites.entry(name).or_default();
        *part += moved.counts().flushed;
        *whole += moved.counts().nonzero();
    }
    let share = |[part, whole]: [u64; 2]| if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    let all = sites.values().fold([0; 2], |sum, site| [sum[0] + site[0], sum[1] + site[1]]);
    let worst = sites.iter().map(|(name, site)| (*name, share(*site))).max_by(|a, b| a.1.total_cmp(&b.1));
    let (name, worst) = worst.unwrap_or(("", 0.0));
    (share(all), name, worst)
}
