//! Emulation of sums in an accumulator of few bits.

use crate::{cast::Round, format::Format};

/// Computes a + b, rounded once to `format`. `a` and `b` may have up to 53 bits.
///
/// The sum in f64 is itself rounded, and rounding twice is not rounding once. Therefore the part that f64 lost is kept
/// as an odd last bit (S. Boldo and G. Melquiond, *Emulation of a FMA and Correctly Rounded Sums: Proved Algorithms
/// Using Rounding to Odd*, 2008). A format with 51 bits or fewer cannot tell this result from the exact sum.
///
/// ```
/// use gradscale_core::{accumulate::add, cast::Round, format::Format};
/// // 1 + 2^-24 is halfway between two f32 values, and 2^-80 more puts it above the middle. In f64 the 2^-80 is lost.
/// let (middle, speck) = (1.0 + 2f64.powi(-24), 2f64.powi(-80));
/// assert_eq!(add(Format::FP32, middle, 0.0, Round::NearestEven), 1.0);
/// assert_eq!(add(Format::FP32, middle, speck, Round::NearestEven), 1.0 + 2f64.powi(-23));
/// ```
#[must_use]
pub fn add(format: Format, a: f64, b: f64, round: Round) -> f64 {
    f64::from(format.decode(format.encode_f64(to_odd(a, b), round).bits))
}

/// Computes a + b in f64, rounded to the neighbour with an odd last bit if the sum is not exact.
fn to_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // The exact rounding error of the addition (D. Knuth, The Art of Computer Programming 2, §4.2.2, Theorem B).
    let part = sum - a;
    let lost = (a - (sum - part)) + (b - part);
    if !sum.is_finite() || lost == 0.0 || sum.to_bits() & 1 != 0 {
        return sum;
    }
    let away = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// Running sum of terms in a number format, one by one or in chunks. Each chunk is summed by itself, and its sum is
/// added to a second accumulator of the same format (Wang et al. 2018).
///
/// ```
/// use gradscale_core::{accumulate::Sum, cast::Round, format::Format};
/// let format = Format::custom(6, 9).expect("a format");
/// let ones = |sum: Sum| (0..4096).fold(sum, |sum, _| sum.plus(1.0)).total();
/// // A sum of ones stays at 2^10, because there a one is half of the last place.
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
    /// Creates an empty running sum in `format`. With [`Round::Stochastic`] every addition uses the same random number;
    /// [`add`] takes one for each.
    #[must_use]
    pub const fn new(format: Format, round: Round) -> Self {
        Self { format, round, chunk: 0, filled: 0, inner: 0.0, outer: 0.0 }
    }

    /// Sets the number of terms in a chunk of the sum; 0 means no chunks.
    #[must_use]
    pub const fn in_chunks(self, chunk: u32) -> Self {
        Self { chunk, ..self }
    }

    /// Adds one term of up to 53 bits to the sum.
    #[must_use]
    pub fn plus(mut self, term: f64) -> Self {
        self.inner = add(self.format, self.inner, term, self.round);
        self.filled = self.filled.saturating_add(1);
        if self.filled == self.chunk {
            self = Self { outer: self.total(), inner: 0.0, filled: 0, ..self };
        }
        self
    }

    /// Returns the value of the sum after all terms so far.
    #[must_use]
    pub fn total(&self) -> f64 {
        add(self.format, self.outer, self.inner, self.round)
    }
}
