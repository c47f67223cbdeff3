//! Error of long sums in accumulators of few bits, and the gain from chunked accumulation.
//!
//! This project accumulates in f32 only (the products of `descriptor` do so on every device). These functions show why,
//! and compute the error of shorter accumulators in other hardware. [`worst_error`] and [`exact_equal_terms`] cover
//! chunked accumulation (N. Wang et al., *Training Deep Neural Networks with 8-bit Floating Point Numbers*, NeurIPS
//! 2018). [`variance`] computes the variance that survives (C. Sakr et al., *Accumulation Bit-Width Scaling for
//! Ultra-Low Precision Training of Deep Networks*, ICLR 2019). [`Sum`] emulates such an accumulator.

mod sum;
pub mod variance;

pub use sum::{Sum, add};

/// Computes the ratio |sum| : |term| from which an accumulator with `mantissa` bits ignores a term ("swamping"). It is
/// 2^(m + 1) under nearest even, because the term is then at most half of the sum's last place (Wang et al.).
///
/// ```
/// use gradscale_core::{accumulate::{add, swamping_ratio}, cast::Round, format::Format};
/// let format = Format::custom(6, 9).expect("a format");
/// let large = swamping_ratio(9);
/// assert_eq!(add(format, large, 1.0, Round::NearestEven), large);
/// assert_ne!(add(format, large / 2.0, 1.0, Round::NearestEven), large / 2.0);
/// ```
#[must_use]
pub fn swamping_ratio(mantissa: u32) -> f64 {
    power(mantissa.saturating_add(1))
}

/// Computes how many equal terms, each a power of two, can be added without any loss. It is 2^(m + 1) one by one. In
/// chunks of `chunk`, each summed by itself, it is `chunk` · ⌊2^(m + 1) / odd part of `chunk`⌋ in whole chunks, as long
/// as one chunk is exact. A `chunk` of 0 means no chunks.
///
/// ```
/// use gradscale_core::accumulate::exact_equal_terms;
/// assert_eq!(exact_equal_terms(9, 0), 1024.0);
/// assert_eq!(exact_equal_terms(9, 64), 65536.0);
/// ```
#[must_use]
pub fn exact_equal_terms(mantissa: u32, chunk: u32) -> f64 {
    let alone = swamping_ratio(mantissa);
    let Some(odd) = chunk.checked_shr(chunk.trailing_zeros()) else { return alone };
    let size = f64::from(chunk);
    if size > alone { alone } else { size * libm::floor(alone / f64::from(odd)) }
}

/// Computes the largest error that rounding to nearest can cause in a sum of `length` terms, as a fraction of Σ|x|. It
/// is (1 + u)^h − 1 with u = 2^-(m + 1). h is the largest number of roundings that a term passes through: `length` one
/// by one, and `chunk` + ⌈`length` / `chunk`⌉ in chunks. Wang et al. give its order, O(N) against O(N / chunk + chunk).
/// The bound with its constants is from N. Higham, *Accuracy and Stability of Numerical Algorithms* (2002), §4.2. It
/// does not hold for sums that overflow.
///
/// A `chunk` of 0, or of at least `length` terms, means no chunks.
///
/// ```
/// use gradscale_core::accumulate::worst_error;
/// assert!(worst_error(9, 4096, 0) > 50.0);
/// assert!(worst_error(9, 4096, 64) < 0.14);
/// ```
#[must_use]
pub fn worst_error(mantissa: u32, length: u32, chunk: u32) -> f64 {
    let in_chunks = (chunk != 0 && chunk < length).then(|| f64::from(chunk) + f64::from(length.div_ceil(chunk)));
    let unit = 1.0 / swamping_ratio(mantissa);
    libm::expm1(in_chunks.unwrap_or(f64::from(length)) * libm::log1p(unit))
}

/// Returns 2^k as f64, or ∞ beyond its range.
fn power(k: u32) -> f64 {
    libm::scalbn(1.0, i32::try_from(k).unwrap_or(i32::MAX))
}
