//! Statistics of one store: a small summary of the f32 values `u = v · 2^(α_to − α_from)` just before they are rounded.
//!
//! Rows merge. For one convention, exponent and detail they are a commutative monoid with [`Stats::new`] as its empty
//! row, so lanes, threads, workgroups, devices and ranks may divide the work in any way. Counts, amax and histogram are
//! integers and bit-identical for every division. Only the sums of [`Moments`] depend on the order, within a bound.

mod convention;
mod counts;
mod moments;
mod row;
pub(crate) mod words;

pub(crate) use moments::mean_and_spread;

pub use convention::{Convention, FlushRule, FormatTooWide};
pub use counts::Counts;
pub use moments::Moments;
pub use row::{BINS, Detail, MergeError, Rate, Stats};
pub use words::{LIGHT_WORDS, RowError, WORDS};
