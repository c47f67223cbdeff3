//! Losses of earlier steps, stored in checkpoints in case the log is lost.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Maximum number of recorded losses. 2^20 losses take 8 MiB, far below the limit of a checkpoint's header.
const MAX_LOSSES: usize = 1 << 20;
/// Number of hexadecimal digits that encode a loss.
const DIGITS: usize = 8;

/// Losses of the last steps, each with a flag for skipped steps. It contains nothing that differs between equal
/// trainings, for example times, so that equal states have equal checkpoints.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// Number of the first step whose loss is stored.
    first: u64,
    /// Bits of each loss as hexadecimal digits: exact, and NaN and ∞ too.
    losses: String,
    skipped: Vec<u64>,
}

/// Stored loss of a step, and whether the step was skipped.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub loss: f32,
    pub skipped: bool,
}

impl History {
    /// Returns the history of a record: one loss for each step from the first.
    pub fn from_record(record: &Record) -> Self {
        let start = record.loss.len().saturating_sub(MAX_LOSSES);
        let first = start as u64 + 1;
        let mut losses = String::with_capacity(DIGITS * (record.loss.len() - start));
        for loss in &record.loss[start..] {
            write!(losses, "{:08x}", loss.to_bits()).ok();
        }
        let skipped = record.skipped_at.iter().copied().filter(|&step| step >= first).collect();
        Self { first, losses, skipped }
    }

    /// Returns the loss of a step, if it is known.
    pub fn step(&self, iteration: u64) -> Option<Known> {
        let at = DIGITS * usize::try_from(iteration.checked_sub(self.first)?).ok()?;
        let digits = self.losses.get(at..at.checked_add(DIGITS)?)?;
        let loss = f32::from_bits(u32::from_str_radix(digits, 16).ok()?);
        Some(Known { loss, skipped: self.skipped.binary_search(&iteration).is_ok() })
    }
}
