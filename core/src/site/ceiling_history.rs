//! History of ceilings of a site's last rows, and the window of ceilings that one exponent can serve.

use crate::store_format::StoreFormat;
use heapless::Deque;

/// Number of rows whose ceilings a site remembers.
pub const CEILING_HISTORY_LEN: usize = 16;
/// Maximum spread of ceilings that one exponent of an FP16 site serves, in binades. FP16 has 40 exponents, and the values
/// of one tensor need the other 16. For other formats see [`StoreFormat::max_ceiling_spread`].
pub const MAX_CEILING_SPREAD: i64 = StoreFormat::Fp16.max_ceiling_spread();
/// Minimum number of rows in the history from which their spread counts as known.
const MIN_SAMPLES: usize = 3;

/// Ceilings of the last rows, oldest first: absolute exponents above which each row would have overflowed (row exponent
/// + k_of).
#[derive(Clone, Debug, Default)]
pub(super) struct CeilingHistory(Deque<i64, CEILING_HISTORY_LEN>);

/// Window of ceilings that one exponent serves: at most [`StoreFormat::max_ceiling_spread`] binades.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CeilingWindow {
    pub min: i64,
    pub max: i64,
    /// True if the history has enough rows to know the spread of their ceilings.
    pub has_enough_samples: bool,
}

impl CeilingWindow {
    /// Returns true if a row with the given ceiling is in the window.
    pub const fn contains(self, ceiling: i64) -> bool {
        self.min <= ceiling && ceiling <= self.max
    }
}

impl CeilingHistory {
    pub fn from_ceilings(ceilings: &[i64]) -> Self {
        let mut ring = Self::default();
        ceilings.iter().for_each(|&ceiling| ring.push(ceiling));
        ring
    }

    pub fn push(&mut self, ceiling: i64) {
        push(&mut self.0, ceiling);
    }

    pub fn iter(&self) -> impl Iterator<Item = i64> {
        self.0.iter().copied()
    }

    pub fn min(&self) -> Option<i64> {
        self.iter().min()
    }

    pub fn has_enough_samples(&self) -> bool {
        self.0.len() >= MIN_SAMPLES
    }

    /// Returns the window of `spread` exponents that contains the most ceilings, `own` among them. Of
    /// equal windows it returns the highest, because a batch that overflows can be repeated, but flushed values are
    /// lost.
    pub fn window(&self, own: Option<i64>, spread: i64) -> Option<CeilingWindow> {
        let inside = |from: i64| {
            let last = from.saturating_add(spread);
            self.iter().chain(own).filter(move |&ceiling| from <= ceiling && ceiling <= last)
        };
        let min = self.iter().chain(own).max_by_key(|&from| (inside(from).count(), from))?;
        let max = inside(min).max()?;
        Some(CeilingWindow { min, max, has_enough_samples: self.has_enough_samples() })
    }
}

/// Appends to a ring and drops its oldest entry if it is full. (`HistoryBuf` would link a bounds check, and with it a
/// panic.)
pub(super) fn push<T, const N: usize>(ring: &mut Deque<T, N>, item: T) {
    if ring.is_full() {
        ring.pop_front();
    }
    ring.push_back(item).ok();
}
