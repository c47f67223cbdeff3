//! What a checkpoint keeps of a site.

use super::{Guard, RING, Site, ring::CeilingHistory};

/// All that a site remembers, for checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteState {
    /// The exponent in force; `None` before the first decision.
    pub alpha: Option<i32>,
    /// Optimizer steps taken since the step that decided, that one included.
    pub since: u32,
    /// Whether the next step decides at once.
    pub at_once: bool,
    /// The least absolute exponent at which each of the last steps would have overflowed, oldest first.
    pub ceilings: heapless::Vec<i64, RING>,
    /// What it remembers longer, of batches that were lost.
    pub guard: Guard,
    /// The least ceiling that attempts at the coming step have shown.
    pub tried: Option<i64>,
}

impl Site {
    /// All that a checkpoint must keep; the history of decisions is for people and not part of it.
    #[must_use]
    pub fn state(&self) -> SiteState {
        let mut ceilings = heapless::Vec::new();
        for ceiling in self.ring.iter() {
            ceilings.push(ceiling).ok();
        }
        SiteState {
            alpha: self.alpha,
            since: self.steps_since_update,
            at_once: self.at_once,
            ceilings,
            guard: self.guard,
            tried: self.required_ceiling,
        }
    }

    /// Continues from a checkpoint, as if there had been no break: a resume by itself decides nothing at once.
    pub fn restore(&mut self, state: &SiteState) {
        self.alpha = state.alpha;
        self.steps_since_update = state.since;
        self.at_once = state.at_once || state.alpha.is_none() && !self.config.is_delayed();
        self.ring = CeilingHistory::from_ceilings(&state.ceilings);
        self.guard = state.guard;
        (self.before, self.failed, self.required_ceiling) = (None, 0, state.tried);
    }
}
