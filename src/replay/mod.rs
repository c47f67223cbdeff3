//! Recorded rows, and what another schedule or rule would have made of a training's gradients, without training again.
//!
//! A trace has what every cast site saw in every step, one JSON object a line; `gradscale train --trace` writes it. Rows are
//! kept in absolute exponents, so what flushes at any other exponent can be read off their histograms. The paper's rules
//! decide from operands of products; a trace has these too, and they move with the exponents that are played. What cannot
//! be seen: values that the recorded training had already flushed or lost, and how weights would have moved.

mod player;
mod rules;
mod shift;

pub use player::{Played, PlayedSite, Player, Summary, Total};
pub use shift::shift;

use crate::{Operands, Scaling};
use gradscale_core::{
    amp::Precision,
    model::terms::Terms,
    solve::Operand,
    stats::{Convention, Detail, Stats, WORDS},
};
use serde::{Deserialize, Serialize};
use std::io::BufRead;

/// One step of a training.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// From 1.
    pub iteration: u64,
    /// Whether the training skipped it.
    pub skipped: bool,
    /// Whether this is an attempt that overflowed: the same batch follows again, under the same number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// In the first line, what the training decided by. Older traces do not say: they were made without repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Sites in the order of the backward pass.
    pub sites: Vec<Seen>,
}

/// What one site saw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Layer and operator.
    pub name: String,
    /// Exponent at which the values were seen.
    pub exponent: i32,
    /// Exponent for the next step.
    pub next: i32,
    /// The row as devices write it; zeros at the end are left out.
    pub words: Vec<u32>,
    /// What the paper's rules decide from. Older traces do not have it.
    #[serde(default)]
    pub operands: Option<Decides>,
}

/// Where a gradient was stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The cast site; none for values that are not scaled.
    pub site: Option<String>,
    /// Its exponent in this step.
    pub exponent: i32,
}

/// One operand of a product.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Root mean square, zeros included.
    pub rms: f64,
    /// Largest magnitude.
    pub max: f64,
}

/// Part of a sum.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Where it comes from.
    pub from: Source,
    /// Largest magnitude as it was stored.
    pub amax: f32,
}

/// What the paper's rules decide a site's exponent from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "lowercase")]
pub enum Decides {
    /// Theorem 1. An operand is missing where it is all zero or not finite.
    Product {
        /// Where the incoming gradient comes from.
        from: Source,
        /// That gradient, as it was stored.
        dy: Option<Measured>,
        /// The weights.
        w: Option<Measured>,
        /// Terms of one element: typical, worst.
        terms: [f64; 2],
    },
    /// Theorem 2: the f32 values at the exponent that they came with.
    Softmax {
        /// Where they come from.
        from: Source,
        /// Their row; zeros at the end are left out.
        words: Vec<u32>,
    },
    /// A sum of gradients.
    Sum {
        /// What was added.
        parts: Vec<Part>,
    },
    /// The gradient of what was split. Older traces call it a sum.
    Split {
        /// What was put together.
        parts: Vec<Part>,
    },
    /// Any other cast: the site's row is enough.
    Cast {
        /// Where the values come from.
        from: Source,
    },
}

impl From<&Operand> for Measured {
    fn from(operand: &Operand) -> Self {
        Self { rms: operand.rms, max: operand.max }
    }
}

impl From<&crate::Source> for Source {
    fn from(source: &crate::Source) -> Self {
        Self { site: source.site.clone(), exponent: source.exponent }
    }
}

impl From<&(crate::Source, f32)> for Part {
    fn from((from, amax): &(crate::Source, f32)) -> Self {
        Self { from: from.into(), amax: *amax }
    }
}

impl Decides {
    fn from_operands(operands: &Operands) -> Self {
        match operands {
            Operands::Product { from, dy, w, terms: Terms { typical, worst } } => Self::Product {
                from: from.into(),
                dy: dy.as_ref().map(Into::into),
                w: w.as_ref().map(Into::into),
                terms: [*typical, *worst],
            },
            Operands::Softmax { from, row } => Self::Softmax { from: from.into(), words: words(row) },
            Operands::Sum(parts) => Self::Sum { parts: parts.iter().map(Into::into).collect() },
            Operands::Split(parts) => Self::Split { parts: parts.iter().map(Into::into).collect() },
            Operands::Cast(from) => Self::Cast { from: from.into() },
        }
    }
}

/// A row as devices write it, without zeros at the end.
fn words(row: &Stats) -> Vec<u32> {
    let words = row.to_words();
    let end = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    words[..end].to_vec()
}

/// The row of such words.
///
/// # Errors
/// Words that are none.
pub fn row(words: &[u32], exponent: i32) -> Result<Stats, String> {
    let mut all = [0; WORDS];
    all.get_mut(..words.len()).ok_or("too many words")?.copy_from_slice(words);
    Stats::from_words(&all, Convention::FP16, exponent).map_err(|error| error.to_string())
}

impl Seen {
    /// Creates the record of a site: the statistics of a step and the exponent that was decided since.
    #[must_use]
    pub fn from_row(name: &str, row: &Stats, next: i32, operands: Option<&Operands>) -> Self {
        let operands = operands.map(Decides::from_operands);
        Self { name: name.to_owned(), exponent: row.exponent(), next, words: words(row), operands }
    }

    /// Whether it saw gradients of weights, which are half only where a method asks for that.
    #[must_use]
    pub fn is_of_weights(&self) -> bool {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        let kind = last.split('.').next().unwrap_or_default();
        self.name.contains('/') && matches!(kind, "wgrad" | "bgrad")
    }

    /// The row.
    ///
    /// # Errors
    /// Words that are none.
    pub fn row(&self) -> Result<Stats, String> {
        row(&self.words, self.exponent)
    }
}

/// All steps of a trace's text. A last line that was cut off is left out.
///
/// # Errors
/// What is no trace, or rows without histograms, with the line and in words.
pub fn parse(text: impl BufRead) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line = line.map_err(|error| error.to_string())?;
        let step: Step = match serde_json::from_str(&line) {
            Ok(step) => step,
            Err(_) if lines.peek().is_none() && number > 0 => break,
            Err(error) => return Err(format!("line {}: {error}", number + 1)),
        };
        for seen in &step.sites {
            let wrong = |cause: String| format!("line {}, {}: {cause}", number + 1, seen.name);
            if seen.row().map_err(wrong)?.detail() < Detail::Full {
                return Err(wrong("a row without a histogram".to_owned()));
            }
        }
        steps.push(step);
    }
    if steps.is_empty() { Err("no steps".to_owned()) } else { Ok(steps) }
}

/// Leaves out the sites of weight gradients where the method keeps these in f32.
///
/// # Errors
/// A trace without them for a method that has them in half.
pub fn keep_weights(steps: &mut [Step], weight_gradients: Precision) -> Result<(), String> {
    match weight_gradients {
        Precision::Single => steps.iter_mut().for_each(|step| step.sites.retain(|seen| !seen.is_of_weights())),
        Precision::Half if steps.iter().any(|step| step.sites.iter().any(Seen::is_of_weights)) => {}
        Precision::Half => {
            return Err("has no weight gradients in half; record it with a method with wgrad=half".to_owned());
        }
    }
    Ok(())
}

/// Steps under a schedule or rule: every attempt that would have been made, and a summary.
///
/// # Errors
/// Rows that are none, or without the operands that a rule needs, in words.
pub fn play(scaling: Scaling, steps: &[Step]) -> Result<(Vec<Played>, Summary), String> {
    let (mut player, mut played, mut attempts) = (Player::new(scaling), Vec::new(), 0);
    for step in steps {
        // What an attempt that overflowed saw behind the overflow is nothing; the batch follows again.
        if step.repeated {
            attempts += 1;
        } else {
            played.extend(player.step(step, std::mem::take(&mut attempts))?);
        }
    }
    Ok((played, player.summary()))
}
