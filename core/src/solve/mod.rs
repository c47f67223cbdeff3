//! Choosing the exponent of one cast site from one row of statistics.
//!
//! Every rule answers with k *relative to the exponent at which the row was measured*; the site adds the two.

mod amax;
mod authors;
mod exact;
mod paper;

pub use amax::{AMAX_ROWS, Amax, MAX_AMAX_MARGIN};
pub use authors::Authors;
pub use exact::{Above, Exact};
pub use paper::{Operand, Paper};

use core::fmt;

/// Least and greatest k that one row can give: what its histogram can prove, and what f32 can reach.
pub const RANGE: core::ops::RangeInclusive<i32> = -152..=101;

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Exponent relative to the one at which the row was measured.
    pub k: i32,
    /// Which rule bound it.
    pub held: LimitedBy,
    /// The share of the non-zero values that will flush, as predicted by the rule.
    pub gamma: f64,
}

/// What a decision was bound by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitedBy {
    /// γ′ is kept, and what lies above allowed no more.
    Threshold,
    /// γ′ is kept even for subnormals: there was room.
    NormalRange,
    /// γ′ is missed: the overflow side bound.
    Overflow,
    /// The end of what one row can give ([`RANGE`]): values lie too far outside the range of halves.
    Range,
    /// The scale needed was below 1, and the rule does not go there ([`Paper`], [`Authors`]).
    One,
    /// The largest magnitude decides, whatever becomes of small values ([`Amax`]).
    Amax,
}

impl LimitedBy {
    /// All of them, in the order in which numbers stand for them in messages and memory: new ones come last.
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

/// Why a row gives no decision; the site's state stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoDecision {
    /// No value, or zeros only.
    Empty,
    /// NaN or ±∞ among the values, or sums beyond f32.
    NotFinite,
    /// The row has no histogram, or no sums, where the rule needs them.
    Detail,
}

impl NoDecision {
    /// All of them, in the order in which numbers stand for them in messages: new ones come last.
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

/// Why a rule cannot be built.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ConfigError {
    /// γ′ outside (0, 1), or below one part per million where it is kept in these.
    Gamma(f64),
    /// A window outside 0..=30 exponents.
    Window(i32),
    /// Room outside 2..=30 exponents.
    Room(i32),
    /// An interval of 0 steps.
    Interval,
    /// Batches left out within 8 bits of what a site has seen, or beyond 100.
    Outliers(i32),
    /// An amax history of more than [`AMAX_ROWS`] rows.
    History(u32),
    /// An amax margin of more than [`MAX_AMAX_MARGIN`] binades.
    Margin(u32),
    /// A site that decides by [`Amax`] with another memory, outliers, or decisions of its caller.
    Amax,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gamma(gamma) => {
                write!(f, "the threshold must lie between 0 and 1, and not below 1e-6 for the exact rule, not {gamma}")
            }
            Self::Window(w) => write!(f, "the window must be 0 to 30 exponents, not {w}"),
            Self::Room(room) => write!(f, "the room must be 2 to 30 exponents, not {room}"),
            Self::Interval => f.write_str("an interval must be at least one step"),
            Self::Outliers(bits) => write!(f, "outliers must lie 8 to 100 exponents above the others, not {bits}"),
            Self::History(rows) => write!(f, "an amax history must hold at most {AMAX_ROWS} rows, not {rows}"),
            Self::Margin(margin) => write!(f, "an amax margin must be 0 to {MAX_AMAX_MARGIN} binades, not {margin}"),
            Self::Amax => {
                f.write_str("a site that decides by amax has no other memory, outliers or caller's decisions")
            }
        }
    }
}

crate::sentence!(ConfigError);

impl core::error::Error for ConfigError {}

/// γ′ as the models take it.
fn open_unit(gamma: f64) -> Result<f64, ConfigError> {
    if gamma > 0.0 && gamma < 1.0 { Ok(gamma) } else { Err(ConfigError::Gamma(gamma)) }
}

fn clamp(k: i32) -> i32 {
    k.clamp(*RANGE.start(), *RANGE.end())
}
