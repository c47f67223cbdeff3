//! Minimum exponent that rises during training (Mellempudi et al. 2019).

use super::{Bounds, ScheduleError};
use heapless::Vec;

/// Maximum number of entries of a rising minimum of the loss scale.
pub const FLOOR_STEPS: usize = 8;

/// Rising minimum of a loss scale: minimum exponents, each valid from a number of training steps on.
///
/// ```
/// use gradscale_core::loss_scale::RisingFloor;
/// // 2^13 from step 40 000, 2^15 from step 150 000.
/// let floor = RisingFloor::new(&[(40_000, 13), (150_000, 15)])?;
/// # Ok::<(), gradscale_core::loss_scale::ScheduleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RisingFloor(Vec<(u64, i32), FLOOR_STEPS>);

impl RisingFloor {
    /// Creates a rising minimum of a loss scale from pairs of (number of training steps, minimum exponent), both
    /// rising.
    ///
    /// # Errors
    /// [`ScheduleError::Floor`] if they do not rise, or if there are more than [`FLOOR_STEPS`].
    pub fn new(steps: &[(u64, i32)]) -> Result<Self, ScheduleError> {
        let rises = steps.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0 && a.1 < b.1));
        let steps = Vec::from_slice(steps).map_err(|_| ScheduleError::Floor)?;
        if rises { Ok(Self(steps)) } else { Err(ScheduleError::Floor) }
    }

    /// Returns the entries of the rising minimum: pairs of (number of training steps, minimum exponent).
    #[must_use]
    pub fn steps(&self) -> &[(u64, i32)] {
        &self.0
    }

    pub(super) fn check(&self, bounds: Bounds) -> Result<(), ScheduleError> {
        let inside = self.0.iter().all(|&(_, exponent)| bounds.clamp(exponent) == exponent);
        if inside { Ok(()) } else { Err(ScheduleError::Floor) }
    }

    /// Returns the loss scale's minimum exponent after `taken` training steps.
    pub(super) fn at(&self, taken: u64, bounds: Bounds) -> i32 {
        self.0.iter().rev().find(|step| step.0 <= taken).map_or(bounds.least(), |step| step.1)
    }
}
