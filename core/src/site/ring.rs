//! The ceilings of a site's last rows, and which of them one exponent can serve.

use heapless::Deque;

/// Rows that a site remembers.
pub const RING: usize = 16;
/// Ceilings further apart than this cannot be served together: FP16 spans 40 exponents, and a tensor needs some.
pub const REACH: i64 = 24;
/// Rows from which it can be told how much they move.
const KNOWN: usize = 3;

/// Absolute exponents above which each of the last rows would have overflowed (row exponent + k_of), oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring(Deque<i64, RING>);

/// Ceilings that are served together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub least: i64,
    pub most: i64,
    /// Whether it is known how much they move.
    pub known: bool,
}

impl Span {
    /// Whether a row with that ceiling is served with them.
    pub const fn holds(self, ceiling: i64) -> bool {
        self.least <= ceiling && ceiling <= self.most
    }
}

impl Ring {
    pub fn of(ceilings: &[i64]) -> Self {
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

    pub fn least(&self) -> Option<i64> {
        self.iter().min()
    }

    pub fn known(&self) -> bool {
        self.0.len() >= KNOWN
    }

    /// The window of [`REACH`] exponents that holds most of the ceilings, this one among them; of windows that hold
    /// as many, the highest, since a batch that does not fit can be repeated and values that flush cannot be had back.
    pub fn span(&self, own: Option<i64>) -> Option<Span> {
        let inside = |from: i64| {
            let last = from.saturating_add(REACH);
            self.iter().chain(own).filter(move |&ceiling| from <= ceiling && ceiling <= last)
        };
        let least = self.iter().chain(own).max_by_key(|&from| (inside(from).count(), from))?;
        let most = inside(least).max()?;
        Some(Span { least, most, known: self.known() })
    }
}

/// Appends to a ring, whose oldest entry makes room. (`HistoryBuf` would link a bounds check, and with it a panic.)
pub(super) fn push<T, const N: usize>(ring: &mut Deque<T, N>, item: T) {
    if ring.is_full() {
        ring.pop_front();
    }
    ring.push_back(item).ok();
}
