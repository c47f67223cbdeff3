//! Guard after a lost batch: a longer history for runtimes that cannot repeat a batch.

/// Duration of the first guard, in steps. It is 32 times the length of the ring.
pub const GUARD_STEPS: u32 = 512;
/// Maximum duration of a guard, in steps: eight doublings of the first.
pub const MAX_GUARD_STEPS: u32 = 1 << 17;
/// Headroom above the lost batch, in bits. The exact rule keeps 2 bits free as well.
const HEADROOM_BITS: i64 = 2;
/// A row whose ceiling is at most this many bits above the limit with headroom renews the guard.
const RENEW_MARGIN_BITS: i64 = 4;

/// Limit of a site's exponent after a lost batch. After an overflow at a ceiling c that ended in a skip, c − 2 limits
/// the site's decisions for 512 steps. Each further return doubles the duration, up to 2^17 steps, and rows near c
/// renew it.
///
/// The guard ends by age alone. If it ended as soon as the ring is full of its magnitude, blocks of more than 16 large
/// and 16 small batches in turn would skip once in every block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// Highest exponent that the guard allows, absolute; invalid if no step is left.
    pub limit: i64,
    /// Number of steps until the guard ends; 0 if there is none.
    pub remaining_steps: u32,
    /// Duration of the guard in steps after a renewal; 0 before the first guard.
    pub duration_steps: u32,
}

impl Guard {
    /// Starts or tightens the guard after a batch with this ceiling was lost.
    pub(super) fn record_lost_batch(&mut self, ceiling: i64) {
        let limit = ceiling.saturating_sub(HEADROOM_BITS);
        if self.remaining_steps > 0 {
            self.limit = self.limit.min(limit);
        } else {
            self.duration_steps = if self.duration_steps == 0 {
                GUARD_STEPS
            } else {
                self.duration_steps.saturating_mul(2).min(MAX_GUARD_STEPS)
            };
            self.limit = limit;
        }
        self.remaining_steps = self.duration_steps;
    }

    /// Ages the guard by one step, or renews it if the row is near the limit.
    pub(super) fn age(&mut self, ceiling: i64) {
        if self.remaining_steps > 0 {
            let near = ceiling <= self.limit.saturating_add(HEADROOM_BITS + RENEW_MARGIN_BITS);
            self.remaining_steps = if near { self.duration_steps } else { self.remaining_steps - 1 };
        }
    }

    /// Returns the highest exponent that the guard allows the site, while it is active.
    pub(super) fn limit(&self) -> Option<i64> {
        (self.remaining_steps > 0).then_some(self.limit)
    }
}
