//! What people are told of sites.

use super::{Sites, SlotKind};
use gradscale_core::{solve::LimitedBy, stats::Stats};

/// What is known of one cast site.
#[derive(Clone, Debug)]
pub struct SiteReport<'a> {
    /// Layer and operator.
    pub name: &'a str,
    /// The exponent in force for the next step: the scale is 2^alpha.
    pub alpha: i32,
    /// The last row: counts, and a histogram after an update.
    pub row: &'a Stats,
    /// Share of the non-zero values that were flushed in the last step.
    pub gamma_measured: f64,
    /// Share that the last decision expected; none under a loss scale, NaN where a rule has no model.
    pub gamma_predicted: Option<f64>,
    /// What the last decision was bound by.
    pub bound: Option<LimitedBy>,
    /// Finite values that overflowed, over all steps. ±∞ and NaN that arrived are not among them.
    pub overflows: u64,
    /// Share of the non-zero values stored as subnormals in the last step.
    pub subnormal_share: f64,
    /// Largest true magnitude in the last step, as a power of two: log2 amax − alpha. None if all was zero.
    pub log2_amax: Option<f64>,
}

impl Sites {
    /// What people are told of the sites that have stored something.
    pub fn reports(&self) -> impl Iterator<Item = SiteReport<'_>> {
        self.entries.iter().zip(&self.exponents).filter(|(entry, _)| entry.kind == SlotKind::Site).filter_map(
            |(entry, &alpha)| {
                let row = entry.row.as_ref()?;
                let counts = row.counts();
                let share = |part: u64| if counts.nonzero() == 0 { 0.0 } else { part as f64 / counts.nonzero() as f64 };
                let last = entry.site.as_ref().and_then(|site| site.history().last());
                Some(SiteReport {
                    name: &entry.name,
                    alpha,
                    row,
                    gamma_measured: share(counts.flushed),
                    gamma_predicted: last.map(|decision| decision.choice.gamma),
                    bound: last.map(|decision| decision.choice.held),
                    overflows: entry.overflows,
                    subnormal_share: share(counts.subnormal),
                    log2_amax: (counts.amax > 0.0).then(|| f64::from(counts.amax).log2() - f64::from(counts.exponent)),
                })
            },
        )
    }
}
