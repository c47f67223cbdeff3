//! Condition on the statistics rows of a step under which its update happens.

use crate::{stats::Stats, step_outcome::found_inf};
use core::ops::Range;

/// Statistics rows of a step that decide whether its update happens ([`Launch::Optimize`](super::Launch::Optimize)), as
/// two ranges of slots.
///
/// Activations are counted beside gradients because a saturating function can hide their overflow: 1/√∞ is 0, and so is
/// its gradient. The gradients are then finite, but wrong.
///
/// ```
/// use gradscale_core::{backend::UpdateGuard, stats::{Convention, Detail, Stats}};
/// let row = |values: &[f32]| {
///     let mut row = Stats::new(Convention::FP16, 0, Detail::Counts);
///     row.observe(values);
///     row
/// };
/// let rows = [row(&[1e6]), row(&[1e6, -1.0]), row(&[f32::INFINITY])];
/// // Gradients are f32, where 10^6 is an ordinary value. As an activation in half it has overflowed.
/// assert!(!UpdateGuard::from(0..2).blocks_update(&rows));
/// assert!(UpdateGuard { gradients: 0..1, activations: 1..2 }.blocks_update(&rows));
/// // ∞ in an activation that was ∞ before, for example in a mask, is no overflow.
/// assert!(!UpdateGuard { gradients: 0..1, activations: 2..3 }.blocks_update(&rows));
/// assert!(UpdateGuard::from(0..3).blocks_update(&rows));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UpdateGuard {
    /// Slots of parameter gradients. A row that has counted ±∞ or NaN blocks the update.
    pub gradients: Range<u16>,
    /// Slots of forward stores. A row that has counted finite values too large for the store blocks the update.
    pub activations: Range<u16>,
}

impl UpdateGuard {
    /// Returns true if a row of the guard blocks the update. `rows` are those of the whole table, by slot.
    #[must_use]
    pub fn blocks_update(&self, rows: &[Stats]) -> bool {
        let counts = |range: &Range<u16>| {
            rows.iter().take(usize::from(range.end)).skip(usize::from(range.start)).map(Stats::counts)
        };
        found_inf(counts(&self.gradients)) || counts(&self.activations).any(|row| row.overflowed != 0)
    }
}

/// Creates the guard of an update that depends on parameter gradients alone.
impl From<Range<u16>> for UpdateGuard {
    fn from(gradients: Range<u16>) -> Self {
        Self { gradients, activations: 0..0 }
    }
}
