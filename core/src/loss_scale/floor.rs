//! A minimum that rises while training goes on (Mellempudi et al. 2019).

use super::{Bounds, ScheduleError};
use heapless::Vec;

/// Steps that a rising minimum can have.
pub const FLOOR_STEPS: usize = 8;

/// From each number of steps taken on, a least exponent.
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
    /// Pairs of (steps taken, least exponent), both rising.
    ///
    /// # Errors
    /// [`ScheduleError::Floor`] if they do not rise, or are more than [`FLOOR_STEPS`].
    pub fn new(steps: &[(u64, i32)]) -> Result<Self, ScheduleError> {
        let rises = steps.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0 && a.1 < b.1));
        let steps = Vec::from_slice(steps).map_err(|_| ScheduleError::Floor)?;
        if rises { Ok(Self(steps)) } else { Err(ScheduleError::Floor) }
    }

    /// The pairs.
    #[must_use]
    pub fn steps(&self) -> &[(u64, i32)] {
        &self.0
    }

    pub(super) fn check(&self, bounds: Bounds) -> Result<(), ScheduleError> {
        let inside = self.0.iter().all(|&(_, exponent)| bounds.clamp(exponent) == exponent);
        if inside { Ok(()) } else { Err(ScheduleError::Floor) }
    }

    /// The least exponent after so many steps.
    pub(super) fn at(&self, taken: u64, bounds: Bounds) -> i32 {
        self.0.iter().rev().find(|step| step.0 <= taken).map_or(bounds.least(), |step| step.1)
    }
}
