//! Sums as an accumulator of few bits forms them.

use crate::{cast::Round, format::Format};

/// a + b, rounded once to `format`; `a` and `b` may have up to 53 digits.
///
/// The sum in f64 is itself rounded, and rounding twice is not rounding once. So what f64 lost is kept as a last digit
/// that is odd (S. Boldo and G. Melquiond, *Emulation of a FMA and Correctly Rounded Sums: Proved Algorithms Using
/// Rounding to Odd*, 2008): a format with 51 digits or fewer cannot tell it from the exact sum.
///
/// ```
/// use gradscale_core::{accumulate::add, cast::Round, format::Format};
/// // 1 + 2^-24 lies between two f32; with a speck more it is above the middle. In f64 the speck is lost.
/// let (middle, speck) = (1.0 + 2f64.powi(-24), 2f64.powi(-80));
/// assert_eq!(add(Format::FP32, middle, 0.0, Round::NearestEven), 1.0);
/// assert_eq!(add(Format::FP32, middle, speck, Round::NearestEven), 1.0 + 2f64.powi(-23));
/// ```
#[must_use]
pub fn add(format: Format, a: f64, b: f64, round: Round) -> f64 {
    f64::from(format.decode(format.encode_f64(to_odd(a, b), round).bits))
}

/// a + b in f64, rounded to the neighbour with an odd last digit where it is not exact.
fn to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // What the addition lost, exactly (D. Knuth, The Art of Computer Programming 2, §4.2.2, Theorem B).
    let part = sum - a;
    let lost = (a - (sum - part)) + (b - part);
    if !sum.is_finite() || lost == 0.0 || sum.to_bits() & 1 != 0 {
        return sum;
    }
    let away = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// A running sum in `format`, one by one or in chunks: each chunk is summed by itself, and its sum is added to a second
/// accumulator of the same format (Wang et al. 2018).
///
/// ```
/// use gradscale_core::{accumulate::Sum, cast::Round, format::Format};
/// let format = Format::custom(6, 9).expect("a format");
/// let ones = |sum: Sum| (0..4096).fold(sum, |sum, _| sum.plus(1.0)).total();
/// // The sum of ones stands still at 2^10, where a one is half of the last place.
/// assert_eq!(ones(Sum::new(format, Round::NearestEven)), 1024.0);
/// assert_eq!(ones(Sum::new(format, Round::NearestEven).in_chunks(64)), 4096.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    format: Format,
    round: Round,
    chunk: u32,
    filled: u32,
    inner: f64,
    outer: f64,
}

impl Sum {
    /// An empty sum. With [`Round::Stochastic`] every addition meets the same random number; [`add`] takes one for each.
    #[must_use]
    pub const fn new(format: Format, round: Round) -> Self {
        Self { format, round, chunk: 0, filled: 0, inner: 0.0, outer: 0.0 }
    }

    /// The same in chunks of so many terms; 0 for none.
    #[must_use]
    pub const fn in_chunks(self, chunk: u32) -> Self {
        Self { chunk, ..self }
    }

    /// With one term more, of up to 53 digits.
    #[must_use]
    pub fn plus(mut self, term: f64) -> Self {
        self.inner = add(self.format, self.inner, term, self.round);
        self.filled = self.filled.saturating_add(1);
        if self.filled == self.chunk {
            self = Self { outer: self.total(), inner: 0.0, filled: 0, ..self };
        }
        self
    }

    /// The sum of all terms so far.
    #[must_use]
    pub fn total(&self) -> f64 {
        add(self.format, self.outer, self.inner, self.round)
    }
}
