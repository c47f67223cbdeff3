//! Likeliest cause of a loss, from the counts of a method's runs. Only one is named: the first that applies.

use super::{MethodResult, flushed_shares, worst_site};
use crate::{
    record::{Record, gradients::percent},
    setup::NOMINAL_STEPS,
};
use gradscale::{Method, Scaling};
use serde::{Serialize, Serializer};
use std::fmt;

/// Number of bits by which a loss scale has fallen if it has collapsed. Overflows alone take two or three bits from
/// torch.amp's first scale of 2^16 in ordinary networks (docs/regimes.md).
const COLLAPSE_BITS: i32 = 8;
/// Share of flushed gradients at the worst site that explains a loss. FP16 keeps the score of ordinary networks with
/// less (docs/workloads.md).
const FLUSHED: f64 = 0.05;
/// Share of skipped steps that explains a loss.
const SKIPPED: f64 = 0.1;

/// Cause of a loss of a score.
#[derive(Clone, Debug, PartialEq)]
pub enum Cause {
    /// Cause of runs that ended early.
    Ended {
        ended: usize,
        seeds: usize,
        steps: usize,
        reason: String,
    },
    /// Cause of a loss scale that fell until gradients became zero.
    Collapsed {
        from: i32,
        to: i32,
        skipped: u64,
    },
    /// Cause of a loss that became infinite or NaN although no step was skipped for it.
    NotFinite {
        step: usize,
    },
    Skipped {
        skipped: u64,
        steps: usize,
    },
    Flushed {
        site: String,
        share: f64,
        sites: usize,
    },
    /// No cause in the counts.
    Unknown {
        flushed: f64,
        skipped: u64,
    },
}

impl Cause {
    /// Returns the cause of the loss of a method.
    pub(super) fn find(result: &MethodResult<'_>) -> Self {
        let runs = &result.runs;
        let ended: Vec<(&Record, &String)> =
            runs.iter().filter_map(|run| Some((*run, run.failure.as_ref()?))).collect();
        if let Some((run, reason)) = ended.first() {
            let (seeds, steps) = (runs.len(), run.loss.len());
            return Self::Ended { ended: ended.len(), seeds, steps, reason: (*reason).clone() };
        }
        if let Some(collapsed) = collapse(result) {
            return collapsed;
        }
        let steps: usize = runs.iter().map(|run| run.loss.len()).sum();
        let skipped: u64 = runs.iter().map(|run| run.skipped_steps).sum();
        let not_finite = |run: &&Record| {
            let step = run.loss.iter().position(|loss| !loss.is_finite())? + 1;
            (!run.skipped_at.contains(&(step as u64))).then_some(step)
        };
        if let Some(step) = runs.iter().filter_map(not_finite).min() {
            return Self::NotFinite { step };
        }
        let (site, share) = worst_site(result).unwrap_or(("", 0.0));
        if share > FLUSHED {
            let sites = flushed_shares(result).iter().filter(|(_, share)| *share > 0.5).count();
            return Self::Flushed { site: result.shorten(site), share, sites };
        }
        if skipped as f64 > SKIPPED * steps as f64 {
            return Self::Skipped { skipped, steps };
        }
        Self::Unknown { flushed: share, skipped }
    }

    /// Returns true if two methods can share a sentence: their causes differ in numbers alone.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Flushed { site, .. }, Self::Flushed { site: same, .. }) => site == same,
            (Self::Ended { reason, .. }, Self::Ended { reason: same, .. }) => reason == same,
            (Self::Collapsed { .. }, Self::Collapsed { .. })
            | (Self::NotFinite { .. }, Self::NotFinite { .. })
            | (Self::Skipped { .. }, Self::Skipped { .. })
            | (Self::Unknown { .. }, Self::Unknown { .. }) => true,
            (
                Self::Flushed { .. }
                | Self::Ended { .. }
                | Self::Collapsed { .. }
                | Self::NotFinite { .. }
                | Self::Skipped { .. }
                | Self::Unknown { .. },
                _,
            ) => false,
        }
    }
}

/// Returns the fall of a method's loss scale, if it has collapsed in every seed and gradients became zero. Other methods
/// have no loss scale: each site of `amax` and `gs` has its own exponent, which may fall for a good reason.
fn collapse(result: &MethodResult<'_>) -> Option<Cause> {
    let method = Method::for_steps(result.method, NOMINAL_STEPS).ok()?;
    let (_, flushed) = worst_site(result)?;
    if !matches!(method.scaling, Scaling::Loss(_)) || flushed <= FLUSHED {
        return None;
    }
    let fall = |run: &&Record| {
        // All sites have the exponent of the loss scale.
        let scale = &run.sites.first()?.alpha;
        Some(Fall { from: *scale.iter().max()?, to: *scale.last()?, skipped: run.skipped_steps })
    };
    let falls: Vec<Fall> = result.runs.iter().map(fall).collect::<Option<_>>()?;
    let has_fallen = |fall: &Fall| fall.from - fall.to >= COLLAPSE_BITS && fall.skipped > 0;
    let deepest = falls.iter().min_by_key(|fall| fall.to).filter(|_| falls.iter().all(has_fallen))?;
    let Fall { from, to, skipped } = *deepest;
    Some(Cause::Collapsed { from, to, skipped })
}

/// Fall of a loss scale during a run, in exponents, and the steps that were skipped meanwhile.
#[derive(Clone, Copy, Debug)]
struct Fall {
    from: i32,
    to: i32,
    skipped: u64,
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { seeds: 1, steps, reason, .. } => write!(f, "it ended after {steps} steps: {reason}"),
            Self::Ended { ended, seeds, steps, reason } => {
                write!(f, "{ended} of {seeds} seeds ended early, after {steps} steps: {reason}")
            }
            Self::Collapsed { from, to, skipped } => {
                write!(
                    f,
                    "its scale fell from 2^{from} to 2^{to} over {skipped} skipped steps, and gradients became zero"
                )
            }
            Self::NotFinite { step } => write!(f, "its loss became infinite or NaN in step {step}"),
            Self::Skipped { skipped, steps } => {
                write!(f, "{skipped} of {steps} steps were skipped because gradients overflowed")
            }
            Self::Flushed { site, share, sites } => {
                write!(f, "{} of the gradients at {site} became zero", percent(*share))?;
                match sites {
                    0 | 1 => Ok(()),
                    sites => write!(f, ", and more than half at {} other cast sites", sites - 1),
                }
            }
            Self::Unknown { flushed, skipped } => write!(
                f,
                "the counts do not explain it (at most {} of a site’s gradients became zero, {skipped} steps skipped)",
                percent(*flushed)
            ),
        }
    }
}
