//! Replay of recorded statistics: the exponents that another schedule or rule would have chosen for a training's
//! gradients, without training again.
//!
//! A trace has the rows of every cast site in every step, one JSON object per line; `gradscale train --trace` writes
//! it. Rows are stored at absolute exponents, so the underflow at any other exponent follows from their histograms. The
//! paper's rules decide from operands of products, which a trace contains too; they are rescaled to the replayed
//! exponents. A replay cannot recover values that the recorded training had already flushed or lost, nor predict other
//! weights.

mod player;
mod rules;
mod shift;

pub use player::{Played, PlayedSite, Player, Summary, Total};
pub use shift::{shift, shift_in};

use crate::{Method, Operands, Scaling};
use gradscale_core::{
    amp::Precision,
    model::terms::Terms,
    solve::Operand,
    stats::{Convention, Detail, Stats, WORDS},
    store_format::StoreFormat,
};
use serde::{Deserialize, Serialize};
use std::io::BufRead;

/// Recorded step of a training, one line of a trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Number of the recorded step, from 1.
    pub iteration: u64,
    /// True if the training skipped the step.
    pub skipped: bool,
    /// True for an attempt at the step that overflowed; the same batch follows again, with the same number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// Activation because of which an attempt was repeated, or the step skipped, if it was one. Older traces do not have the
    /// latter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation: Option<OverflowedActivation>,
    /// In the first line, the method of the training. Older traces do not have it, because they were recorded without
    /// repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Records of the step's sites, in the order of the backward pass.
    pub sites: Vec<Seen>,
}

/// Activation that overflowed in an attempt at a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverflowedActivation {
    /// Name of the forward store: layer and operator.
    pub site: String,
    /// Exponent at which the activation overflowed.
    pub exponent: i32,
}

impl Step {
    /// Checks that the rows of the training are those of one exponent for each tensor.
    fn check_replayable(&self) -> Result<(), String> {
        let method = self.method.as_deref().and_then(|text| text.parse::<Method>().ok());
        match method.map(|method| method.scaling) {
            Some(Scaling::Blocks(_)) => Err("recorded under block scaling, whose rows are relative to the scales of \
                blocks; record it again under another method"
                .to_owned()),
            Some(Scaling::Loss(_) | Scaling::Gradient(_)) | None => Ok(()),
        }
    }
}

/// Record of one cast site in one step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Name of the cast site: layer and operator.
    pub name: String,
    /// Exponent at which the site's values were observed.
    pub exponent: i32,
    /// Exponent that the site had decided for the next step.
    pub next: i32,
    /// Statistics row as the words that devices write, without zeros at the end.
    pub words: Vec<u32>,
    /// Name of the format of the site's stores, if it is not FP16, by whose thresholds the row counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// Operands from which the paper's rules decide. Older traces do not have them.
    #[serde(default)]
    pub operands: Option<Decides>,
}

/// Origin of a gradient: the site at which it was stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Name of the cast site; `None` for values that are not scaled.
    pub site: Option<String>,
    /// Exponent of the site of origin in this step.
    pub exponent: i32,
}

/// Statistics of one operand of a product.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Root mean square of the operand's values, zeros included.
    pub rms: f64,
    /// Largest magnitude of the operand's values.
    pub max: f64,
}

/// Term of a sum of gradients, or part of a split's gradient.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Site at which the term was stored.
    pub from: Source,
    /// Largest magnitude of the term's stored values.
    pub amax: f32,
}

/// Operands from which the paper's rules decide a site's exponent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "lowercase")]
pub enum Decides {
    /// Product, for Theorem 1. An operand that is all zero or not finite is missing.
    Product {
        /// Origin of the gradient of the product's result.
        from: Source,
        /// Statistics of the gradient of the product's result, as stored.
        dy: Option<Measured>,
        /// Statistics of the product's weights.
        w: Option<Measured>,
        /// Number of products that are summed in an element of the result: typical, worst.
        terms: [f64; 2],
    },
    /// Cast after a softmax, for Theorem 2: the f32 values at their incoming exponent.
    Softmax {
        /// Origin of the gradient that comes into the softmax.
        from: Source,
        /// Statistics row of the f32 values to be cast, as words, without zeros at the end.
        words: Vec<u32>,
    },
    /// Sum of gradients at a branch, for the paper's rule of branches.
    Sum {
        /// Terms of the sum of gradients.
        parts: Vec<Part>,
    },
    /// Gradient of a split, which concatenates parts. Older traces record it as a sum.
    Split {
        /// Parts that were concatenated to the split's gradient.
        parts: Vec<Part>,
    },
    /// Any other cast, whose rule needs only the site's row.
    Cast {
        /// Origin of the gradient that comes into the cast.
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

/// Returns a statistics row as the words that devices write, without zeros at the end.
fn words(row: &Stats) -> Vec<u32> {
    let words = row.to_words();
    let end = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
    words[..end].to_vec()
}

/// Converts words of a trace, without zeros at the end, to a statistics row.
///
/// # Errors
/// Words that are not a row.
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
        let named = |format: &StoreFormat| format.convention() == row.convention();
        let format = StoreFormat::ALL.into_iter().find(named).unwrap_or_default();
        let format = (format != StoreFormat::Fp16).then(|| format.name().to_owned());
        Self { name: name.to_owned(), exponent: row.exponent(), next, words: words(row), format, operands }
    }

    /// Returns true for a site of weight gradients, which exists only if a method stores them in half.
    #[must_use]
    pub fn is_of_weights(&self) -> bool {
        let last = self.name.rsplit('/').next().unwrap_or_default();
        let kind = last.split('.').next().unwrap_or_default();
        self.name.contains('/') && matches!(kind, "wgrad" | "bgrad")
    }

    /// Returns the statistics row of the record.
    ///
    /// # Errors
    /// Words that are not a row, or an unknown format.
    pub fn row(&self) -> Result<Stats, String> {
        let row = row(&self.words, self.exponent)?;
        let Some(name) = &self.format else { return Ok(row) };
        let format = StoreFormat::ALL.into_iter().find(|format| format.name() == name);
        format.map(|format| row.counted_in(format)).ok_or_else(|| format!("{name} is not a format of stores"))
    }
}

/// Parses all steps of a trace file. A truncated last line is ignored.
///
/// # Errors
/// A text that is not a trace, or rows without histograms; the message names the line.
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
                return Err(wrong("the row has no histogram; record the trace again".to_owned()));
            }
        }
        steps.push(step);
    }
    if steps.is_empty() { Err("no steps".to_owned()) } else { Ok(steps) }
}

/// Removes the sites of weight gradients if the method stores these in f32.
///
/// # Errors
/// A trace without these sites, for a method that stores weight gradients in half.
pub fn keep_weights(steps: &mut [Step], weight_gradients: Precision) -> Result<(), String> {
    match weight_gradients {
        Precision::Single => steps.iter_mut().for_each(|step| step.sites.retain(|seen| !seen.is_of_weights())),
        Precision::Half if steps.iter().any(|step| step.sites.iter().any(Seen::is_of_weights)) => {}
        Precision::Half => {
            return Err("has no f16 weight gradients; record it by a method with wgrad=half".to_owned());
        }
    }
    Ok(())
}

/// Replays steps with a schedule or rule, and returns every attempt that would have been made, and a summary.
///
/// # Errors
/// Rows that are invalid, or lack the operands that a rule needs; as a sentence.
pub fn play(scaling: Scaling, steps: &[Step]) -> Result<(Vec<Played>, Summary), String> {
    let (mut player, mut played, mut attempts) = (Player::new(scaling), Vec::new(), 0);
    for step in steps {
        // The rows downstream of an overflow are unusable, and the batch follows again.
        if step.repeated && step.activation.is_some() {
            played.extend(player.step(step, 0)?);
        } else if step.repeated {
            attempts += 1;
        } else {
            played.extend(player.step(step, std::mem::take(&mut attempts))?);
        }
    }
    Ok((played, player.summary()))
}
