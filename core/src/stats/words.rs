//! Rows as 32-bit words: the layout that devices write and hosts read. The exponent is not among them, because the host
//! has uploaded it.
//!
//! | words | content |
//! |---|---|
//! | 0..14 | count, zeros, infinite, nan, flushed, overflowed, subnormal: u64, low word first |
//! | 14 | bits of amax |
//! | 15 | [`Detail`]: 0 no store, 1 counts, 2 also the histogram, 3 also the sums |
//! | 16..24 | Σu, Σu², Σ ln\|u\|, Σ ln²\|u\|: each the sum of two f32, large part first |
//! | 24..280 | histogram by key |

use super::{Convention, Counts, Detail, Moments, Stats, row::BINS};
use core::fmt;

/// Number of 32-bit words of a statistics row with histogram and sums.
pub const WORDS: usize = HISTOGRAM + BINS;
/// Number of words of a row without histogram, which is the start of a full one.
pub const LIGHT_WORDS: usize = 16;
/// Word offset in a statistics row of the counts of ∞ and NaN.
pub(crate) const INFINITE: usize = 4;
/// Word offset in a statistics row of the count of finite values that were too large for the store.
pub(crate) const OVERFLOWED: usize = 10;
/// Word offset of amax in a statistics row.
pub(crate) const AMAX: usize = 14;
/// Word offset of the detail in a statistics row; the sums follow it.
pub(crate) const DETAIL: usize = 15;
/// Word offset of the histogram in a statistics row.
pub(crate) const HISTOGRAM: usize = LIGHT_WORDS + 8;

impl Stats {
    /// Converts words to the row that was observed at `exponent`. A row without histogram needs the first
    /// [`LIGHT_WORDS`], others need [`WORDS`]. Words beyond its detail are ignored.
    ///
    /// # Errors
    /// [`RowError`] if words are missing or contradict each other, so that no device can have written the row.
    pub fn from_words(words: &[u32], convention: Convention, exponent: i32) -> Result<Self, RowError> {
        let (light, rest) = words.split_first_chunk::<LIGHT_WORDS>().ok_or(RowError::TooShort)?;
        let [c0, c1, z0, z1, i0, i1, n0, n1, f0, f1, o0, o1, s0, s1, amax, detail] = *light;
        let detail = match detail {
            0 => Detail::None,
            1 => Detail::Counts,
            2 => Detail::Full,
            3 => Detail::Moments,
            _ => return Err(RowError::Detail),
        };
        let mut row = Self::new(convention, exponent, detail);
        if detail == Detail::None {
            return Ok(row);
        }
        let wide = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        row.counts = Counts {
            count: wide(c0, c1),
            zeros: wide(z0, z1),
            infinite: wide(i0, i1),
            nan: wide(n0, n1),
            flushed: wide(f0, f1),
            overflowed: wide(o0, o1),
            subnormal: wide(s0, s1),
            amax: f32::from_bits(amax),
            exponent,
        };
        if detail >= Detail::Full {
            let (sums, bins) = rest.split_first_chunk::<8>().ok_or(RowError::TooShort)?;
            row.bins = *bins.first_chunk().ok_or(RowError::TooShort)?;
            if detail >= Detail::Moments {
                let pair = |large: u32, small: u32| f64::from(f32::from_bits(large)) + f64::from(f32::from_bits(small));
                let [a, b, c, d, e, f, g, h] = *sums;
                row.moments =
                    Moments { sum: pair(a, b), sum_sq: pair(c, d), sum_ln: pair(e, f), sum_ln_sq: pair(g, h) };
            }
        }
        row.checked()
    }

    /// Creates a row from counts, sums and bins, as far as `detail` includes them. Sums keep the 48 bits of two f32, as
    /// in the words of a row.
    ///
    /// # Errors
    /// [`RowError`] if the parts contradict each other.
    pub fn from_parts(
        convention: Convention, detail: Detail, counts: Counts, moments: Moments, bins: &[u32; BINS],
    ) -> Result<Self, RowError> {
        let mut row = Self::new(convention, counts.exponent, detail);
        if detail == Detail::None {
            return Ok(row);
        }
        row.counts = counts;
        if detail >= Detail::Full {
            row.bins = *bins;
        }
        if detail >= Detail::Moments {
            let [sum, sum_sq, sum_ln, sum_ln_sq] = moments.to_array().map(|sum| {
                let [large, small] = pair(sum);
                f64::from(large) + f64::from(small)
            });
            row.moments = Moments { sum, sum_sq, sum_ln, sum_ln_sq };
        }
        row.checked()
    }

    /// Checks that the parts of a row agree, and returns the row if a device can have written it.
    fn checked(self) -> Result<Self, RowError> {
        let (counts, amax) = (&self.counts, self.counts.amax.to_bits());
        let parts = [counts.zeros, counts.infinite, counts.nan, counts.flushed, counts.overflowed, counts.subnormal];
        let sum = parts.iter().try_fold(0u64, |sum, &part| sum.checked_add(part));
        if sum.is_none_or(|sum| sum > counts.count) {
            return Err(RowError::Counts);
        }
        if amax >= 0x7F80_0000 || (amax == 0) != (counts.nonzero() == 0) {
            return Err(RowError::Amax);
        }
        if self.detail >= Detail::Full {
            let total: u64 = self.bins.iter().map(|&bin| u64::from(bin)).sum();
            let full = self.bins.contains(&u32::MAX);
            if total != counts.nonzero() && !full {
                return Err(RowError::Histogram);
            }
            // amax belongs to the highest bin with values.
            let top = self.bins.iter().rposition(|&bin| bin != 0);
            if counts.nonzero() != 0 && top != usize::try_from((amax + self.convention.key_constant()) >> 23).ok() {
                return Err(RowError::Histogram);
            }
        }
        Ok(self)
    }

    /// Returns the words of the row without its exponent, with zeros for parts that it did not observe. Sums keep the
    /// 48 bits of two f32.
    #[must_use]
    pub fn to_words(&self) -> [u32; WORDS] {
        let c = &self.counts;
        let wide = [c.count, c.zeros, c.infinite, c.nan, c.flushed, c.overflowed, c.subnormal];
        let halves = wide.into_iter().flat_map(|x| {
            let [a, b, c, d, e, f, g, h] = x.to_le_bytes();
            [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
        });
        let sums = self.moments.to_array().into_iter().flat_map(|sum| pair(sum).map(f32::to_bits));
        let all = halves.chain([c.amax.to_bits(), self.detail.code()]).chain(sums).chain(self.bins);
        let mut words = [0; WORDS];
        for (word, value) in words.iter_mut().zip(all) {
            *word = value;
        }
        words
    }
}

/// Splits an f64 sum into two f32, the large part first.
fn pair(sum: f64) -> [f32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the large part")]
    let large = sum as f32;
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the small part")]
    let small = if large.is_finite() { (sum - f64::from(large)) as f32 } else { 0.0 };
    [large, small]
}

/// Reason why words or parts are not a statistics row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowError {
    /// The row has fewer words than its detail needs.
    TooShort,
    /// The counts of zeros, flushed values and so on exceed the count of all values.
    Counts,
    /// The row's amax is negative or not finite, or contradicts the counts.
    Amax,
    /// The histogram's sum is not the number of non-zero values, or its highest bin is not that of amax.
    Histogram,
    /// The word of the row's detail has no valid value.
    Detail,
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooShort => "a row of statistics has too few words",
            Self::Counts => "a row's parts exceed its count",
            Self::Amax => "a row's amax contradicts its counts",
            Self::Histogram => "a row's histogram contradicts its counts or its amax",
            Self::Detail => "a row has an unknown detail",
        })
    }
}

impl core::error::Error for RowError {}
