//! State of a site in checkpoints.

use super::{CEILING_HISTORY_LEN, Guard, Site, ceiling_history::CeilingHistory};

/// State of a cast site that a checkpoint saves.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteState {
    /// Exponent of the site in force; `None` before the first decision.
    pub alpha: Option<i32>,
    /// Number of optimizer steps since the step that decided, that one included.
    pub since: u32,
    /// True if the site decides inside the next step, before the store.
    pub at_once: bool,
    /// Ceilings of the site's last steps, oldest first: absolute exponents above which each would have overflowed.
    pub ceilings: heapless::Vec<i64, CEILING_HISTORY_LEN>,
    /// Guard of the site against batches that were lost.
    pub guard: Guard,
    /// Lowest ceiling that the site has seen in the failed attempts at the coming step.
    pub tried: Option<i64>,
}

impl Site {
    /// Returns the state that a checkpoint must keep. The history of decisions is for display and not part of it.
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

    /// Restores the state from a checkpoint. A resume alone causes no decision inside the step.
    pub fn restore(&mut self, state: &SiteState) {
        self.alpha = state.alpha;
        self.steps_since_update = state.since;
        self.at_once = state.at_once || state.alpha.is_none() && !self.config.is_delayed();
        self.ring = CeilingHistory::from_ceilings(&state.ceilings);
        self.guard = state.guard;
        (self.before, self.failed, self.required_ceiling) = (None, 0, state.tried);
    }
}
