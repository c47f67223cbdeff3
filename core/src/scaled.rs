//! The tuple ⟨α, data⟩ that is propagated backwards through a network (paper, §4.1).

use crate::scale::Factor;

/// Tensor or value with its accumulated exponent: `true value = data · 2^-alpha`.
///
/// `A` is the exponent itself, or a slot of a table that contains it.
///
/// ```
/// use gradscale_core::scaled::Scaled;
/// let dy = Scaled::new(3.0f32, 32);
/// assert_eq!(dy.unscale(), 3.0 * 2f32.powi(-32));
/// assert_eq!(dy.rescale(30), Scaled::new(0.75, 30));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scaled<T, A = i32> {
    /// Scaled data: 2^alpha times the true values.
    pub data: T,
    /// Accumulated exponent α of the data, or the slot that has it.
    pub alpha: A,
}

impl<T, A> Scaled<T, A> {
    /// Creates the scaled tensor ⟨`alpha`, `data`⟩ from data and exponent.
    #[must_use]
    pub const fn new(data: T, alpha: A) -> Self {
        Self { data, alpha }
    }

    /// Replaces the data and keeps the exponent, as operators do that only move values.
    #[must_use]
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Scaled<U, A> {
        Scaled { data: f(self.data), alpha: self.alpha }
    }
}

impl<T> Scaled<T> {
    /// Returns the factor that rescales the data to the exponent `to`.
    #[must_use]
    pub const fn factor(&self, to: i32) -> Factor {
        Factor::between(self.alpha, to)
    }
}

impl Scaled<f32> {
    /// Returns the true value. It is exact unless it is an f32 subnormal or too large.
    #[must_use]
    pub const fn unscale(self) -> f32 {
        self.factor(0).apply(self.data)
    }

    /// Returns the same value at the exponent `to`. It is exact unless it leaves the normal range of f32.
    #[must_use]
    pub const fn rescale(self, to: i32) -> Self {
        Self { data: self.factor(to).apply(self.data), alpha: to }
    }
}
