//! Long sums in few bits: what they lose, and what chunks save.
//!
//! This project adds in f32 only (`descriptor`'s products accumulate so on every device). These functions say why,
//! and what shorter accumulators of other hardware would do: [`worst_error`] and [`exact_equal_terms`] for chunked
//! accumulation (N. Wang et al., *Training Deep Neural Networks with 8-bit Floating Point Numbers*, NeurIPS 2018),
//! [`variance`] for the variance that survives (C. Sakr et al., *Accumulation Bit-Width Scaling for Ultra-Low
//! Precision Training of Deep Networks*, ICLR 2019), and [`Sum`] to try it.

mod sum;
pub mod variance;

pub use sum::{Sum, add};

/// At which ratio |sum| : |term| of an accumulator with `mantissa` bits a term leaves no trace ("swamping"): 2^(m + 1)
/// under nearest even, where the term is at most half of the sum's last place (Wang et al.).
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

/// How many equal terms, each a power of two, are added without any loss: 2^(m + 1) one by one. In chunks of `chunk`,
/// each summed by itself, `chunk` · ⌊2^(m + 1) / odd part of `chunk`⌋ in whole chunks, as long as one chunk is exact.
/// A chunk of 0 stands for none.
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

/// The most that rounding to nearest can change a sum of `length` terms, as a share of Σ|x|: (1 + u)^h − 1 with
/// u = 2^-(m + 1) and h roundings on the way of a term, of which there are `length` one by one and
/// `chunk` + ⌈`length` / `chunk`⌉ in chunks. Wang et al. state the order of it, O(N) against O(N / chunk + chunk); the
/// bound with its constants is that of N. Higham, *Accuracy and Stability of Numerical Algorithms* (2002), §4.2. It does
/// not hold for sums that overflow.
///
/// A chunk of 0, or one of at least `length` terms, stands for none.
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

/// 2^k; ∞ beyond f64.
fn power(k: u32) -> f64 {
    libm::scalbn(1.0, i32::try_from(k).unwrap_or(i32::MAX))
}
