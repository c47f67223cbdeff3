//! How a step ended, and who is to blame.

use crate::{
    site::{Calls, StepEnd},
    stats::Counts,
};
use core::fmt;

/// Whether some parameter gradient is not finite: the step is skipped iff so. Rows of f32 gradients count what is
/// not finite one by one; a sum that overflows although every term is finite does not matter.
#[must_use]
pub fn found_inf<'a>(parameters: impl IntoIterator<Item = &'a Counts>) -> bool {
    parameters.into_iter().any(|row| row.non_finite() != 0)
}

/// What went wrong at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Finite values were too large for the store: a smaller exponent mends it.
    Overflow,
    /// Infinite values arrived although nothing before had overflowed: from the forward pass, from an f32 product,
    /// or from a finite value times too large a factor.
    Infinite,
    /// NaN arrived although nothing before had overflowed: not a scaling problem.
    Nan,
}

impl Kind {
    /// Whether another exponent mends it for certain.
    #[must_use]
    pub const fn is_scaling(self) -> bool {
        matches!(self, Self::Overflow)
    }
}

/// The first site at which values stopped being finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blame {
    /// Its index among the rows given.
    pub site: usize,
    /// What went wrong.
    pub kind: Kind,
    /// The exponent in force there.
    pub exponent: i32,
}

/// Names the first site that overflowed, among rows of half stores in the order of their execution: forward
/// stores, then the backward pass. `None` if all are finite; then the overflow happened in f32, between the last
/// site and the parameter.
#[must_use]
pub fn blame<'a>(sites: impl IntoIterator<Item = &'a Counts>) -> Option<Blame> {
    sites.into_iter().enumerate().find_map(|(site, row)| {
        let kind = if row.overflowed != 0 {
            Kind::Overflow
        } else if row.nan != 0 {
            Kind::Nan
        } else if row.infinite != 0 {
            Kind::Infinite
        } else {
            return None;
        };
        Some(Blame { site, kind, exponent: row.exponent })
    })
}

/// Repeats of one batch, at most.
pub const REPEATS: u32 = 3;

/// Whether a batch is to be run again whose attempt found something not finite, first at a cast site (not at a store of
/// the forward pass, where no exponent mends it); `failed` attempts came before this one. A site with one call cannot
/// overflow in a repeat, in which it decides from its own values: what it meets there is not finite whatever the
/// exponents are. The later of several calls, or of several micro-batches, can, if they are larger than what was seen
/// before.
#[must_use]
pub const fn may_repeat(calls: Calls, failed: u32) -> bool {
    match calls {
        Calls::One => failed == 0,
        Calls::Several => failed < REPEATS,
    }
}

/// How a step that is not run again ends for the site at `at` among those in which `blame` was found: stepped with, or
/// skipped because of that or an earlier site, or of a later one. `void` where a batch that does not fit is run again:
/// one that is lost all the same says nothing of the next.
#[must_use]
pub const fn end(stepped: bool, void: bool, blame: Option<Blame>, at: usize) -> StepEnd {
    match blame {
        _ if stepped => StepEnd::Stepped,
        _ if void => StepEnd::Void,
        Some(blame) if at > blame.site => StepEnd::SkippedAfter,
        Some(_) | None => StepEnd::SkippedHere,
    }
}

/// How a step, or an attempt at it, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Parameters were updated.
    Stepped,
    /// Nothing changed, and the same batch is run again, at exponents that fit it.
    Repeated(Blame),
    /// Nothing changed: parameters, optimizer state, step counts, schedules and running statistics are as before.
    Skipped(Option<Blame>),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stepped => f.write_str("stepped"),
            Self::Repeated(Blame { site, exponent, .. }) => {
                write!(f, "repeated: site {site} overflowed at 2^{exponent}")
            }
            Self::Skipped(None) => f.write_str("skipped: a parameter gradient is not finite"),
            Self::Skipped(Some(Blame { site, kind, exponent })) => match kind {
                Kind::Overflow => write!(f, "skipped: site {site} overflowed at 2^{exponent}"),
                Kind::Infinite => {
                    write!(f, "skipped: site {site} received ±∞ at 2^{exponent}, though nothing before it overflowed")
                }
                Kind::Nan => {
                    write!(f, "skipped: site {site} received NaN at 2^{exponent}, which is not a scaling problem")
                }
            },
        }
    }
}

/// Counts skips in a row and ends a training that will not recover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkipLimit {
    limit: u32,
    in_a_row: u32,
}

impl SkipLimit {
    /// Stops after `limit` skips in a row; 0 never stops.
    #[must_use]
    pub const fn new(limit: u32) -> Self {
        Self { limit, in_a_row: 0 }
    }

    /// Skips in a row so far: the state to save.
    #[must_use]
    pub const fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Continues from a saved state.
    pub const fn restore(&mut self, in_a_row: u32) {
        self.in_a_row = in_a_row;
    }

    /// Takes the outcome of a step; that of an attempt which is repeated says nothing yet.
    ///
    /// # Errors
    /// [`TooManySkips`] from the `limit`th skip in a row on.
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

/// Training was skipped too often in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySkips {
    /// Skips in a row.
    pub in_a_row: u32,
    /// The site of the last one.
    pub blame: Option<Blame>,
}

impl fmt::Display for TooManySkips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps in a row were not taken; the last was {}", self.in_a_row, Outcome::Skipped(self.blame))
    }
}

impl core::error::Error for TooManySkips {}
