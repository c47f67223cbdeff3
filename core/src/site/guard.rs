//! A longer memory, for runtimes that cannot repeat a batch.

/// Steps that a first guard lasts.
pub const GUARD_STEPS: u32 = 512;
/// Steps that a guard lasts at most.
pub const GUARD_LIMIT: u32 = 1 << 17;
/// Bits that it keeps free above the batch that it was made for.
const FREE: i64 = 2;
/// Rows whose ceiling lies no further above that batch's renew it.
const NEAR: i64 = 4;

/// After an overflow at a ceiling c that ended in a skip, c − 2 limits what a site decides, for 512 steps; twice as
/// long after each return, up to 2^17; renewed while rows near it come. It ends by age alone: a guard that ended as
/// soon as the ring is full of its magnitude would let blocks of more than 16 large and 16 small batches skip once in
/// every block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The limit, as an absolute exponent; says nothing once no step is left.
    pub limit: i64,
    /// Steps left.
    pub left: u32,
    /// Steps that it lasts when it is renewed; 0: there was none yet.
    pub lasts: u32,
}

impl Guard {
    /// A batch with this ceiling overflowed, and is lost.
    pub(super) fn learn(&mut self, ceiling: i64) {
        let limit = ceiling.saturating_sub(FREE);
        if self.left > 0 {
            self.limit = self.limit.min(limit);
        } else {
            self.lasts = if self.lasts == 0 { GUARD_STEPS } else { self.lasts.saturating_mul(2).min(GUARD_LIMIT) };
            self.limit = limit;
        }
        self.left = self.lasts;
    }

    /// A row with this ceiling was stored.
    pub(super) fn age(&mut self, ceiling: i64) {
        if self.left > 0 {
            let near = ceiling <= self.limit.saturating_add(FREE + NEAR);
            self.left = if near { self.lasts } else { self.left - 1 };
        }
    }

    /// The limit, while it lasts.
    pub(super) fn limit(&self) -> Option<i64> {
        (self.left > 0).then_some(self.limit)
    }
}
