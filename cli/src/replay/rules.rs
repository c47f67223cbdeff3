//! The paper's rules, along the chain as it is played: from the operands that a trace has recorded.

use super::shift::shift;
use crate::trace::{Decides, Measured, Source, row};
use gradscale::{
    Preset,
    core::{
        model::terms::Terms,
        rules::branch_paper,
        scaled::Scaled,
        solve::{Choice, Held, NoDecision, Operand, Paper},
        stats::{Convention, Stats},
    },
};
use std::collections::BTreeMap;

/// Exponents of the sites that this step has stored so far.
pub type Exponents = BTreeMap<String, i32>;

/// What a rule says, relative to the exponent that comes in, and that exponent. `seen` is the site's own row.
pub fn verdict(
    preset: &Preset, decides: &Decides, seen: &Stats, played: &Exponents,
) -> Result<(Result<Choice, NoDecision>, i32), String> {
    Ok(match decides {
        Decides::Product { from, dy, w, terms: [typical, worst] } => {
            let incoming = exponent(from, played)?;
            // What was stored at one exponent, at another: 2^(played − recorded) times as large.
            let factor = 2f64.powi(incoming.saturating_sub(from.exponent));
            let terms = Terms { typical: *typical, worst: *worst };
            let verdict = match (operand(dy, factor), operand(w, 1.0)) {
                (Some(dy), Some(w)) => match preset {
                    Preset::Paper(paper) => paper.product(&dy, &w, terms),
                    Preset::Authors(authors) => authors.product(&dy, &w, terms, incoming),
                    Preset::Exact => Err(NoDecision::Detail),
                },
                _ => Err(NoDecision::Empty),
            };
            (verdict, incoming)
        }
        Decides::Softmax { from, words } => {
            let incoming = exponent(from, played)?;
            let row = shift(&row(words, from.exponent)?, incoming);
            let verdict = match preset {
                Preset::Paper(paper) => paper.softmax_cast(&row),
                Preset::Authors(authors) => authors.softmax_cast(&row),
                Preset::Exact => Err(NoDecision::Detail),
            };
            (verdict, incoming)
        }
        Decides::Sum { parts } => {
            let moved = parts
                .iter()
                .map(|part| Ok(Scaled::new(part.amax, part.from.exponent).rescale(exponent(&part.from, played)?)));
            let moved = moved.collect::<Result<Vec<_>, String>>()?;
            let incoming = moved.iter().map(|part| part.alpha).max().unwrap_or(0);
            let verdict = match branch_paper(&moved) {
                Some(alpha) => Ok(Choice { k: alpha.saturating_sub(incoming), held: Held::One, gamma: f64::NAN }),
                None => other(&shift(seen, incoming)),
            };
            (verdict, incoming)
        }
        Decides::Cast { from } => {
            let incoming = exponent(from, played)?;
            (other(&shift(seen, incoming)), incoming)
        }
    })
}

/// The exponent of what comes in.
fn exponent(from: &Source, played: &Exponents) -> Result<i32, String> {
    match &from.site {
        None => Ok(0),
        Some(site) => played.get(site).copied().ok_or_else(|| format!("{site} comes before it, and is not there")),
    }
}

fn operand(measured: &Option<Measured>, factor: f64) -> Option<Operand> {
    let Measured { rms, max } = (*measured)?;
    Some(Operand { rms: rms * factor, max: max * factor, convention: Convention::FP16 })
}

fn other(row: &Stats) -> Result<Choice, NoDecision> {
    Paper::new(1e-3).map_err(|_| NoDecision::Detail)?.other_cast(row)
}
