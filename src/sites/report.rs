//! Report of the sites for display.

use super::{Sites, SlotKind};
use gradscale_core::{solve::LimitedBy, stats::Stats};

/// Report of one cast site: statistics and last decision.
#[derive(Clone, Debug)]
pub struct SiteReport<'a> {
    /// Name of the cast site: layer and operator.
    pub name: &'a str,
    /// Exponent of the site in force for the next step: the scale is 2^alpha.
    pub alpha: i32,
    /// Last statistics row of the site: counts, and a histogram after an update.
    pub row: &'a Stats,
    /// Fraction of the site's non-zero values that flushed in the last step.
    pub gamma_measured: f64,
    /// Fraction of flushed values that the site's last decision predicted; `None` under a loss scale, NaN if the rule
    /// has no model.
    pub gamma_predicted: Option<f64>,
    /// Constraint that determined the site's last decision.
    pub bound: Option<LimitedBy>,
    /// Number of the site's finite values that overflowed, over all steps. ±∞ and NaN on input are not included.
    pub overflows: u64,
    /// Fraction of the site's non-zero values stored as subnormals in the last step.
    pub subnormal_share: f64,
    /// Binary logarithm of the site's largest true magnitude in the last step: log2 amax − alpha. `None` if all values
    /// were zero, and under block scaling, where a row has magnitudes relative to those of blocks.
    pub log2_amax: Option<f64>,
}

impl Sites {
    /// Returns the reports of all cast sites that have stored.
    pub fn reports(&self) -> impl Iterator<Item = SiteReport<'_>> {
        self.reports_of(SlotKind::Site)
    }

    /// Returns the reports of all forward stores of half values. Their exponent is 0 unless forward stores have exponents
    /// ([`crate::ForwardScaling`]).
    pub fn forward_reports(&self) -> impl Iterator<Item = SiteReport<'_>> {
        self.reports_of(SlotKind::Forward)
    }

    /// Returns the reports of all weights that products read in a format of 8 bits ([`crate::StoreFormats::weight`]).
    pub fn weight_reports(&self) -> impl Iterator<Item = SiteReport<'_>> {
        self.reports_of(SlotKind::Weight)
    }

    fn reports_of(&self, kind: SlotKind) -> impl Iterator<Item = SiteReport<'_>> {
        let has_blocks = self.block_scaling().is_some();
        self.entries.iter().zip(&self.exponents).filter(move |(entry, _)| entry.kind == kind).filter_map(
            move |(entry, &alpha)| {
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
                    log2_amax: (counts.amax > 0.0 && !has_blocks)
                        .then(|| f64::from(counts.amax).log2() - f64::from(counts.exponent)),
                })
            },
        )
    }
}
