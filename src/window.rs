//! Window of a single loss scale: the powers of two at which one scale serves every gradient of a batch.
//!
//! A loss scale must be large enough that no gradient flushes to zero, and small enough that none overflows. The window
//! is the range between both limits. It depends on the network, its state and the batch, and [`Trainer::window`]
//! measures it:
//!
//! ```text
//! reference  = gradients of the parameters: forward pass in half, every gradient of the backward pass stored in f32
//! tensors    = the same with half gradients, each scaled by its own largest magnitude
//! scale 2^S  = the same with half gradients, all scaled by 2^S
//! window     = [least S at which the error of every parameter is at most max(2 · its error in tensors, 2 %),
//!               first S at which a finite value overflows)
//! ```
//!
//! The error of a parameter is the norm of the difference from the reference, divided by the norm of the reference. All
//! passes have the same forward pass, so the window shows only the error from the storage of gradients. 2 % is the
//! error that rounding of the forward pass to half causes in ordinary networks, so a smaller error has no effect.
//!
//! Parameters whose error with per-tensor scales is at least half of the gradient are excluded. Their gradient is zero
//! except for rounding, for example that of a bias before batch norm. [`ScaleWindows::left_out`] counts them.
//!
//! Weight gradients are measured twice, because libraries differ: stored in f32, as in Megatron, which accumulates
//! them, and stored in half, as in torch.amp, apex and DeepSpeed. Half needs more range, because a weight gradient is a
//! sum over positions and much larger than the gradients in that sum.
//!
//! [`Trainer::window`]: crate::Trainer::window

use gradscale_core::amp::Precision;
use std::fmt;

/// Relative error that is accepted even if per-tensor scales reach a smaller one; see the head of this module.
pub const TOLERATED_ERROR: f64 = 0.02;
/// Relative error with per-tensor scales from which on a parameter is excluded: its true gradient is smaller than the
/// rounding.
const ROUNDING_ERROR: f64 = 0.5;
/// Exponents of the smallest and the largest loss scale that is tried, which is the range of f32.
const EXPONENTS: [i32; 2] = [-126, 126];

/// Loss scale of a library by default: initial or fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryScale {
    /// Name of the library with that loss scale.
    pub library: &'static str,
    /// Exponent of that initial or fixed loss scale.
    pub exponent: i32,
    /// True if the library keeps its loss scale fixed, false if it adapts it.
    pub is_fixed: bool,
}

/// Default loss scales of common libraries, for comparison with a window.
pub const LIBRARY_SCALES: [LibraryScale; 3] = [
    LibraryScale { library: "tiny-cuda-nn", exponent: 7, is_fixed: true },
    LibraryScale { library: "torch.amp", exponent: 16, is_fixed: false },
    LibraryScale { library: "DeepSpeed", exponent: 32, is_fixed: false },
];

/// Windows of a single loss scale for a state and a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaleWindows {
    /// Number of parameters whose gradients were compared.
    pub compared: usize,
    /// Number of parameters that were not compared, because their gradient is zero except for rounding.
    pub left_out: usize,
    /// Gradient errors with a separate scale for each tensor, for comparison.
    pub per_tensor: GradientErrors,
    /// Window of loss scales with weight gradients stored in f32.
    pub single: ScaleWindow,
    /// Window of loss scales with weight gradients stored in half.
    pub half: ScaleWindow,
}

/// Relative errors of the parameters' gradients: median and largest.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientErrors {
    /// Median of the gradient errors over the parameters.
    pub median: f64,
    /// Largest gradient error of a parameter.
    pub worst: f64,
    /// Name of the parameter with the largest gradient error.
    pub parameter: String,
}

impl GradientErrors {
    /// Summarizes the error of each parameter; `None` without any.
    fn summary(mut errors: Vec<(f64, &str)>) -> Option<Self> {
        errors.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let &(worst, parameter) = errors.last()?;
        let (median, _) = *errors.get(errors.len() / 2)?;
        Some(Self { median, worst, parameter: parameter.to_owned() })
    }
}

/// Window of a loss scale: range of powers of two that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleWindow {
    /// Storage type of weight gradients for which the window holds.
    pub weight_gradients: Precision,
    /// Exponent of the smallest loss scale in the window; `None` if the window is empty.
    pub least: Option<i32>,
    /// Exponent of the smallest loss scale at which a finite value overflows; `None` if even 2^126 fits.
    pub overflow: Option<i32>,
    /// Name of the parameter whose error is too large one binade below the smallest scale, or at all scales.
    pub lost: Option<String>,
    /// Name of the cast site that overflows first above the window.
    pub overflowed: Option<String>,
}

/// Position of a loss scale relative to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The loss scale is inside the window.
    Inside {
        /// Number of binades down to the smallest scale of the window.
        below: u32,
        /// Number of binades up to the largest scale of the window.
        above: u32,
    },
    /// The loss scale is too small by this number of binades.
    Below(u32),
    /// The loss scale is too large by this number of binades.
    Above(u32),
    /// The window is empty, so no loss scale is inside.
    NoWindow,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binades = |count: &u32| if *count == 1 { "1 binade".to_owned() } else { format!("{count} binades") };
        match self {
            Self::Inside { below, above } => write!(f, "inside, {below} below it and {above} above"),
            Self::Below(count) => write!(f, "too small by {}", binades(count)),
            Self::Above(count) => write!(f, "too large by {}", binades(count)),
            Self::NoWindow => f.write_str("outside"),
        }
    }
}

impl ScaleWindow {
    /// Returns the size of the window in binades: the number of powers of two in it.
    #[must_use]
    pub fn binades(&self) -> u32 {
        self.least.map_or(0, |least| least.abs_diff(self.end()))
    }

    /// Returns the position of the loss scale 2^`exponent` relative to the window.
    #[must_use]
    pub fn place(&self, exponent: i32) -> Place {
        let Some(least) = self.least else { return Place::NoWindow };
        if exponent < least {
            Place::Below(least.abs_diff(exponent))
        } else if exponent >= self.end() {
            Place::Above(exponent.abs_diff(self.end()) + 1)
        } else {
            Place::Inside { below: exponent.abs_diff(least), above: self.end().abs_diff(exponent) - 1 }
        }
    }

    /// Returns the exponent after the largest one in the window.
    fn end(&self) -> i32 {
        self.overflow.unwrap_or(EXPONENTS[1] + 1)
    }
}

/// Name of a parameter, and its gradient.
pub(crate) type NamedGradient = (String, Vec<f32>);

/// Result of a backward pass at one loss scale, with which a window is searched.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// Name of the cast site at which a finite value overflowed.
    pub overflowed: Option<String>,
    /// Gradients of the parameters, in the order of the reference.
    pub gradients: Vec<NamedGradient>,
}

/// Reference gradients of the search for a window, and the accepted errors of a probe.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    gradients: Vec<NamedGradient>,
    /// Maximum accepted gradient error of each parameter; `None` for excluded ones.
    accepted: Vec<Option<f64>>,
    pub left_out: usize,
    pub per_tensor: GradientErrors,
}

impl Reference {
    /// Creates a reference from exact gradients and from those with per-tensor scales; `None` if no parameter can be
    /// compared.
    pub fn new(exact: Vec<NamedGradient>, tensors: &[NamedGradient]) -> Option<Self> {
        let errors: Vec<Option<f64>> = exact.iter().zip(tensors).map(|(exact, found)| error(exact, found)).collect();
        let counts = |error: &Option<f64>| error.filter(|error| *error < ROUNDING_ERROR);
        let counted =
            errors.iter().zip(&exact).filter_map(|(error, (name, _))| Some((counts(error)?, name.as_str()))).collect();
        let per_tensor = GradientErrors::summary(counted)?;
        let accepted: Vec<Option<f64>> =
            errors.iter().map(|error| counts(error).map(|error| (2.0 * error).max(TOLERATED_ERROR))).collect();
        let left_out = accepted.iter().filter(|accepted| accepted.is_none()).count();
        Some(Self { gradients: exact, accepted, left_out, per_tensor })
    }

    /// Computes the errors of other gradients, of the parameters that are compared; `None` if no parameter is.
    pub fn errors(&self, found: &[NamedGradient]) -> Option<GradientErrors> {
        let compared = self.gradients.iter().zip(found).zip(&self.accepted).filter(|(_, accepted)| accepted.is_some());
        let errors = compared.filter_map(|((exact, found), _)| Some((error(exact, found)?, exact.0.as_str())));
        GradientErrors::summary(errors.collect())
    }

    /// Returns the number of parameters whose gradients are compared.
    pub fn compared(&self) -> usize {
        self.accepted.len() - self.left_out
    }

    /// Returns the parameter whose error exceeds its limit by the largest factor; `None` if all are accepted.
    fn lost(&self, found: &[NamedGradient]) -> Option<String> {
        let excess = |((exact, found), accepted): ((&NamedGradient, &NamedGradient), &Option<f64>)| {
            let excess = error(exact, found)? / (*accepted)?;
            (excess > 1.0).then(|| (excess, exact.0.clone()))
        };
        let all = self.gradients.iter().zip(found).zip(&self.accepted).filter_map(excess);
        all.max_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, name)| name)
    }

    /// Finds the window, given the gradients at each scale by `probe`. Overflow is monotone in the scale, so the upper
    /// end is found by bisection. From there scales are tried downwards until the error of one is too large.
    pub fn window<E>(
        &self, weight_gradients: Precision, mut probe: impl FnMut(i32) -> Result<Probe, E>,
    ) -> Result<ScaleWindow, E> {
        let [first, last] = EXPONENTS;
        let mut window = ScaleWindow { weight_gradients, least: None, overflow: None, lost: None, overflowed: None };
        // No overflow at `fits`, one at `overflows`.
        let (mut fits, mut overflows) = (first - 1, last + 1);
        while overflows - fits > 1 {
            let middle = (fits + overflows).div_euclid(2);
            match probe(middle)?.overflowed {
                None => fits = middle,
                Some(site) => {
                    overflows = middle;
                    (window.overflow, window.overflowed) = (Some(middle), Some(site));
                }
            }
        }
        for exponent in (first..overflows).rev() {
            if let Some(parameter) = self.lost(&probe(exponent)?.gradients) {
                window.lost = Some(parameter);
                break;
            }
            window.least = Some(exponent);
        }
        Ok(window)
    }
}

/// Computes the norm of the difference, divided by the norm of the exact gradient; `None` if that is zero, ∞ if `found`
/// is not finite.
fn error((_, exact): &NamedGradient, (_, found): &NamedGradient) -> Option<f64> {
    let sum = |squares: &mut dyn Iterator<Item = f64>| squares.sum::<f64>().sqrt();
    let norm = sum(&mut exact.iter().map(|&x| f64::from(x).powi(2)));
    let far = sum(&mut exact.iter().zip(found).map(|(&x, &y)| (f64::from(y) - f64::from(x)).powi(2)));
    (norm > 0.0).then(|| if far.is_finite() { far / norm } else { f64::INFINITY })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network with one value: at the scale 2^S it loses values below `small`, and overflows from `large` on.
    fn toy(small: i32, large: i32) -> impl FnMut(i32) -> Result<Probe, ()> {
        move |exponent| {
            let value = if exponent < small { 0.0 } else { 1.0 };
            let overflowed = (exponent >= large).then(|| "site".to_owned());
            Ok(Probe { overflowed, gradients: vec![("noise".to_owned(), vec![0.0]), ("w".to_owned(), vec![value])] })
        }
    }

    fn reference() -> Reference {
        let exact = vec![("noise".to_owned(), vec![1e-9]), ("w".to_owned(), vec![1.0])];
        let tensors = vec![("noise".to_owned(), vec![-1e-9]), ("w".to_owned(), vec![1.0])];
        Reference::new(exact, &tensors).expect("a gradient")
    }

    #[test]
    fn both_ends_are_found_wherever_they_are() {
        let reference = reference();
        assert_eq!((reference.compared(), reference.left_out), (1, 1));
        for small in [-126, -125, -3, 0, 7, 60, 126] {
            for large in [-126, -120, 0, 1, 7, 8, 61, 126, 127] {
                let window = reference.window(Precision::Single, toy(small, large)).expect("no error");
                assert_eq!(window.overflow, (large <= 126).then_some(large), "{small} {large}");
                assert_eq!(window.least, (small < large).then_some(small), "{small} {large}");
                assert_eq!(window.binades(), u32::try_from((large - small).max(0)).expect("positive"));
                let lost = small > -126 && large > -126;
                assert_eq!(window.lost.as_deref(), lost.then_some("w"), "{small} {large}");
            }
        }
    }

    #[test]
    fn errors_are_of_compared_parameters() {
        let found = |noise: f32, value: f32| vec![("noise".to_owned(), vec![noise]), ("w".to_owned(), vec![value])];
        let errors = |value| reference().errors(&found(5.0, value)).expect("a parameter");
        assert_eq!(errors(0.75), GradientErrors { median: 0.25, worst: 0.25, parameter: "w".to_owned() });
        assert_eq!(errors(f32::INFINITY).worst, f64::INFINITY);
        let summary = GradientErrors::summary(vec![(0.5, "b"), (0.125, "a"), (2.0, "c")]);
        assert_eq!(summary, Some(GradientErrors { median: 0.5, worst: 2.0, parameter: "c".to_owned() }));
        assert_eq!(GradientErrors::summary(Vec::new()), None);
    }

    #[test]
    fn places_in_a_window() {
        let window = reference().window(Precision::Half, toy(4, 29)).expect("no error");
        let places = [16, 3, 4, 28, 29, 32].map(|exponent| window.place(exponent));
        let inside = |below, above| Place::Inside { below, above };
        let expected =
            [inside(12, 12), Place::Below(1), inside(0, 24), inside(24, 0), Place::Above(1), Place::Above(4)];
        assert_eq!(places, expected);
        let none = reference().window(Precision::Half, toy(9, 4)).expect("no error");
        assert_eq!((none.binades(), none.place(4)), (0, Place::NoWindow));
    }
}
