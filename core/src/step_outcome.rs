//! Outcome of a training step, and the first site that was not finite.

use crate::{
    site::{Calls, SiteOutcome},
    stats::Counts,
};
use core::fmt;

/// Returns true if some parameter gradient is not finite, which is the only condition for a skip. Rows of f32 gradients
/// count such values one by one, so a sum that overflows although every term is finite does not matter.
#[must_use]
pub fn found_inf<'a>(parameters: impl IntoIterator<Item = &'a Counts>) -> bool {
    parameters.into_iter().any(|row| row.non_finite() != 0)
}

/// Kind of non-finite values at a site: overflow, ±∞ or NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NonFiniteKind {
    /// Overflow: finite values were too large for the site's store; a smaller exponent cures it.
    Overflow,
    /// Infinite values arrived at the site although nothing upstream had overflowed: from the forward pass, from an f32
    /// product, or from a finite value times too large a factor.
    Infinite,
    /// NaN arrived at the site although nothing upstream had overflowed: not a scaling problem.
    Nan,
}

impl NonFiniteKind {
    /// Returns true if another exponent avoids the non-finite values for certain.
    #[must_use]
    pub const fn is_scaling(self) -> bool {
        matches!(self, Self::Overflow)
    }
}

/// Result of the search for the first site with values that are not finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FirstNonFinite {
    /// Index of the first non-finite site among the given rows.
    pub site: usize,
    /// Kind of the non-finite values at the site.
    pub kind: NonFiniteKind,
    /// Exponent in force at the first non-finite site.
    pub exponent: i32,
}

/// Finds the first site that was not finite, among rows of half stores in execution order: forward stores, then the
/// backward pass. `None` if all are finite; then the overflow happened in f32, between the last site and the parameter.
#[must_use]
pub fn find_first_non_finite<'a>(sites: impl IntoIterator<Item = &'a Counts>) -> Option<FirstNonFinite> {
    sites.into_iter().enumerate().find_map(|(site, row)| {
        let kind = if row.overflowed != 0 {
            NonFiniteKind::Overflow
        } else if row.nan != 0 {
            NonFiniteKind::Nan
        } else if row.infinite != 0 {
            NonFiniteKind::Infinite
        } else {
            return None;
        };
        Some(FirstNonFinite { site, kind, exponent: row.exponent })
    })
}

/// Maximum number of repeats of one batch that overflows.
pub const MAX_REPEATS: u32 = 3;

/// Returns true if a batch is to be repeated after an attempt whose first non-finite values were at a cast site. (At a
/// forward store without a site no exponent cures them.) `failed` is the number of attempts before this one.
///
/// A site with one call cannot overflow in a repeat, because it decides from its own values; if it is not finite again,
/// no exponent can cure it. The later of several calls or micro-batches can overflow, if they are larger than the
/// values seen before.
#[must_use]
pub const fn may_repeat(calls: Calls, failed: u32) -> bool {
    match calls {
        Calls::One => failed == 0,
        Calls::Several => failed < MAX_REPEATS,
    }
}

/// Maps a finished step to the result at the site with index `at`. Sites up to the one in `blame` are `Skipped`,
/// later ones `SkippedDownstream`. If the method repeats batches that overflow (`void`), a batch that is skipped anyway says
/// nothing about the next, so the result is `RolledBack`.
#[must_use]
pub const fn site_outcome(stepped: bool, void: bool, blame: Option<FirstNonFinite>, at: usize) -> SiteOutcome {
    match blame {
        _ if stepped => SiteOutcome::Stepped,
        _ if void => SiteOutcome::RolledBack,
        Some(blame) if at > blame.site => SiteOutcome::SkippedDownstream,
        Some(_) | None => SiteOutcome::Skipped,
    }
}

/// Outcome of a training step, or of one attempt at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The step was applied: the optimizer updated the parameters.
    Stepped,
    /// The step overflowed and has changed nothing; the same batch is run again, at exponents that fit it.
    Repeated(FirstNonFinite),
    /// The step was skipped and has changed nothing: parameters, optimizer state, step counts, schedules and running
    /// statistics are as before.
    Skipped(Option<FirstNonFinite>),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stepped => f.write_str("stepped"),
            Self::Repeated(FirstNonFinite { site, exponent, .. }) => {
                write!(f, "repeated: site {site} overflowed at 2^{exponent}")
            }
            Self::Skipped(None) => f.write_str("skipped: a parameter gradient is not finite"),
            Self::Skipped(Some(FirstNonFinite { site, kind, exponent })) => match kind {
                NonFiniteKind::Overflow => write!(f, "skipped: site {site} overflowed at 2^{exponent}"),
                NonFiniteKind::Infinite => {
                    write!(f, "skipped: site {site} received ±∞ at 2^{exponent}, although nothing before it overflowed")
                }
                NonFiniteKind::Nan => {
                    write!(f, "skipped: site {site} received NaN at 2^{exponent}, which is not a scaling problem")
                }
            },
        }
    }
}

/// Counter of consecutive skips that ends a training which will not recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkipLimit {
    limit: u32,
    in_a_row: u32,
}

impl SkipLimit {
    /// Creates a counter that stops after `limit` consecutive skips; 0 never stops.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self { limit, in_a_row: 0 }
    }

    /// Returns the number of consecutive skipped steps so far, which is the state to save.
    #[must_use]
    pub const fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Restores the number of consecutive skipped steps that was saved.
    pub const fn restore(&mut self, in_a_row: u32) {
        self.in_a_row = in_a_row;
    }

    /// Counts the outcome of a step. An attempt that is repeated does not count.
    ///
    /// # Errors
    /// [`TooManySkips`] from the `limit`th consecutive skip on.
    pub fn update(&mut self, outcome: Outcome) -> Result<(), TooManySkips> {
        let blame = match outcome {
            Outcome::Skipped(blame) => blame,
            Outcome::Repeated(_) => return Ok(()),
            Outcome::Stepped => {
                self.in_a_row = 0;
                return Ok(());
            }
        };
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.limit != 0 && self.in_a_row >= self.limit {
            Err(TooManySkips { in_a_row: self.in_a_row, blame })
        } else {
            Ok(())
        }
    }
}

/// Error that ends a training: too many consecutive steps were skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySkips {
    /// Number of consecutive steps that were skipped.
    pub in_a_row: u32,
    /// First non-finite site of the last skipped step.
    pub blame: Option<FirstNonFinite>,
}

impl fmt::Display for TooManySkips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps in a row were skipped; the last was {}", self.in_a_row, Outcome::Skipped(self.blame))
    }
}

impl core::error::Error for TooManySkips {}
