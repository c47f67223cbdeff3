//! Comparing a device's results with exact ones.
//!
//! NaN is compared by class, ∞ by sign and never with the largest number; finite results by the tolerance table.

use crate::{
    case::{Fail, Measured},
    epilogue::half,
    tolerance::bound,
};
use gradscale_core::backend::{Caps, DType};

/// Exact result, and the scale in which its error is measured.
#[derive(Clone, Copy, Debug)]
pub struct Want {
    /// The result in f64.
    pub value: f64,
    /// Sum of the magnitudes of its terms.
    pub scale: f64,
    /// Number of its terms.
    pub terms: usize,
}

impl Want {
    /// A result of one term.
    pub fn one(value: f64) -> Self {
        Self { value, scale: value.abs(), terms: 1 }
    }

    /// A sum.
    pub fn sum(terms: impl IntoIterator<Item = f64>) -> Self {
        let zero = Self { value: 0.0, scale: 0.0, terms: 0 };
        terms.into_iter().fold(zero, |sum, term| Self {
            value: sum.value + term,
            scale: sum.scale + term.abs(),
            terms: sum.terms + 1,
        })
    }

    /// The same times a number.
    pub fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, scale: self.scale * factor.abs(), ..self }
    }
}

/// Compares results with exact ones under an entry of the tolerance table. Half results must be the rounding of some
/// number within the tolerance.
///
/// # Errors
/// The first result that is too far off.
pub fn compare(
    entry: &'static str, dtype: DType, caps: &Caps<'_>, got: &[f32], want: &[Want],
) -> Result<Measured, Fail> {
    same_length(got, want)?;
    let mut worst = 0f64;
    for (i, (&got, want)) in got.iter().zip(want).enumerate() {
        let unit = (want.terms.max(1) as f64).sqrt() * want.scale.max(f64::from(f32::MIN_POSITIVE)) * 2f64.powi(-24);
        // A device without f32 subnormals may flush values below the smallest normal number.
        let floor = if caps.f32_subnormals { 0.0 } else { f64::from(f32::MIN_POSITIVE) };
        let allowed = bound(entry) * unit + floor;
        let (low, high) = (want.value - allowed, want.value + allowed);
        let narrow = |x: f64| match dtype {
            // Rounded by the device's own rule. The rule is monotone, so a value between two numbers is stored between
            // them.
            DType::F16 => f64::from(half(caps.flush, x as f32)),
            _ => f64::from(x as f32),
        };
        let x = f64::from(got);
        let right = match want.value {
            v if v.is_nan() => x.is_nan(),
            v if v.is_infinite() => x == v,
            _ => (narrow(low)..=narrow(high)).contains(&x),
        };
        if !right {
            return Err(Fail::new(format!(
                "{entry}: element {i} is {got:e} ({:#010x}), exact {:e}, off by {:.3} units, {} allowed",
                got.to_bits(),
                want.value,
                (x - want.value).abs() / unit,
                bound(entry),
            )));
        }
        if dtype == DType::F32 && want.value.is_finite() && x.is_finite() {
            // A loss that the device's number format causes is not an error of the operator.
            worst = worst.max(((x - want.value).abs() - floor).max(0.0) / unit);
        }
    }
    Ok(Measured { entry, worst })
}

/// Compares results bit for bit, NaN by class.
///
/// # Errors
/// The first difference.
pub fn same_bits(what: &str, got: &[f32], want: &[f32]) -> Result<(), Fail> {
    same_length(got, want)?;
    let differs = |(got, want): (&f32, &f32)| got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan());
    match got.iter().zip(want).position(differs) {
        None => Ok(()),
        Some(i) => Err(Fail::new(format!(
            "{what}: element {i} is {:e} ({:#010x}), not {:e} ({:#010x})",
            got[i],
            got[i].to_bits(),
            want[i],
            want[i].to_bits()
        ))),
    }
}

/// Compares results whose f32 value does not depend on the order of their terms: bit for bit, but for the sign of
/// zero, which does depend on it (a sum starts at 0, or at its first term, which may be −0).
///
/// # Errors
/// The first difference.
pub fn same_numbers(what: &str, got: &[f32], want: &[f32]) -> Result<(), Fail> {
    let unsigned = |values: &[f32]| values.iter().map(|v| v + 0.0).collect::<Vec<_>>();
    same_bits(what, &unsigned(got), &unsigned(want))
}

fn same_length<A, B>(got: &[A], want: &[B]) -> Result<(), Fail> {
    if got.len() == want.len() {
        Ok(())
    } else {
        Err(Fail::new(format!("{} results instead of {}", got.len(), want.len())))
    }
}
