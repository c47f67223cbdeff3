//! Rules that choose the exponent of one cast site from one row of statistics.
//!
//! Every rule returns k *relative to the exponent at which the row was measured*; the site adds the two.

mod amax;
mod authors;
mod exact;
mod paper;

pub use amax::{AMAX_ROWS, Amax, MAX_AMAX_MARGIN};
pub use authors::Authors;
pub(crate) use exact::MAX_WINDOW;
pub use exact::{Exact, HeadroomConstraints};
pub use paper::{Operand, Paper};

use crate::store_format::StoreFormat;
use core::fmt;

/// Smallest and largest k that one row can give: the lower end is the limit of its histogram, the upper end that of
/// f32.
pub const RANGE: core::ops::RangeInclusive<i32> = -152..=101;

/// Choice of a rule: an exponent and its reason.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Chosen exponent, relative to the one at which the row was measured.
    pub k: i32,
    /// Constraint that determined the chosen exponent.
    pub held: LimitedBy,
    /// Predicted fraction of the non-zero values that will flush at the exponent.
    pub gamma: f64,
}

/// Constraint that determined the exponent of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// Flush threshold γ′: it is kept, and the limit against overflow allowed no higher exponent.
    Threshold,
    /// Normal range: γ′ is kept even with subnormals counted as flushed, because there was enough range.
    NormalRange,
    /// Limit against overflow: because of it γ′ is missed.
    Overflow,
    /// Range of exponents that one row can give ([`RANGE`]): values are too far outside the range of halves.
    Range,
    /// Lower limit 1 of the scale: the required scale was below it, and the rule does not go below 1 ([`Paper`],
    /// [`Authors`]).
    One,
    /// Largest magnitude alone, without regard to small values ([`Amax`]).
    Amax,
}

impl LimitedBy {
    /// All constraints of decisions. The order defines their numbers in messages and memory, so new ones are appended.
    pub const ALL: [Self; 6] = [Self::Threshold, Self::NormalRange, Self::Overflow, Self::Range, Self::One, Self::Amax];
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threshold => "threshold",
            Self::NormalRange => "normal range",
            Self::Overflow => "overflow",
            Self::Range => "range",
            Self::One => "one",
            Self::Amax => "amax",
        })
    }
}

/// Reason why a row gives no decision; the site's state is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoDecision {
    /// The row has no value, or all are zero.
    Empty,
    /// The row has a NaN or ±∞ among its values, or a sum exceeds f32.
    NotFinite,
    /// The row has no histogram or no sums, which the rule needs.
    Detail,
}

impl NoDecision {
    /// All reasons why a row gives no decision. The order defines their numbers in messages, so new ones are appended.
    pub const ALL: [Self; 3] = [Self::Empty, Self::NotFinite, Self::Detail];
}

impl fmt::Display for NoDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "all values are zero",
            Self::NotFinite => "some values are not finite",
            Self::Detail => "the row was observed in too little detail",
        })
    }
}

impl core::error::Error for NoDecision {}

/// Reason why a rule or cast site cannot be configured.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The flush threshold γ′ is outside (0, 1), or below one part per million where it is stored in these units.
    Gamma(f64),
    /// The window of the rule is outside 0..=30 exponents.
    Window(i32),
    /// The headroom of the rule is outside 2..=30 exponents.
    Headroom(i32),
    /// The update interval is 0 steps.
    Interval,
    /// The outlier limit is below 8 or above 100 exponents.
    Outliers(i32),
    /// The amax history has more than [`AMAX_ROWS`] rows.
    History(u32),
    /// The amax margin is more than [`MAX_AMAX_MARGIN`] binades.
    Margin(u32),
    /// The amax margin leaves no normal number of the site's format.
    MarginOfFormat {
        /// The amax margin, in binades.
        margin: u32,
        /// Format of the site, which has fewer binades.
        format: StoreFormat,
    },
    /// A site decides by [`Amax`] together with a history, outliers, or decisions of its caller.
    Amax,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gamma(gamma) => {
                write!(f, "the threshold must be between 0 and 1, and not below 1e-6 for the exact rule, not {gamma}")
            }
            Self::Window(w) => write!(f, "the window must be 0 to 30 exponents, not {w}"),
            Self::Headroom(room) => write!(f, "the room must be 2 to 30 exponents, not {room}"),
            Self::Interval => f.write_str("an interval must be at least one step"),
            Self::Outliers(bits) => write!(f, "outliers must be 8 to 100 exponents above the others, not {bits}"),
            Self::History(rows) => write!(f, "an amax history must hold at most {AMAX_ROWS} rows, not {rows}"),
            Self::Margin(margin) => write!(f, "an amax margin must be 0 to {MAX_AMAX_MARGIN} binades, not {margin}"),
            Self::MarginOfFormat { margin, format } => {
                let binades = format.format().binades();
                write!(f, "an amax margin must be at most {binades} binades with format={format}, not {margin}")
            }
            Self::Amax => f.write_str(
                "an amax history cannot be combined with another history, outliers or decisions of the caller",
            ),
        }
    }
}

crate::sentence!(ConfigError);

impl core::error::Error for ConfigError {}

/// Checks that the flush threshold γ′ is in (0, 1).
fn open_unit(gamma: f64) -> Result<f64, ConfigError> {
    if gamma > 0.0 && gamma < 1.0 { Ok(gamma) } else { Err(ConfigError::Gamma(gamma)) }
}

fn clamp(k: i32) -> i32 {
    k.clamp(*RANGE.start(), *RANGE.end())
}
