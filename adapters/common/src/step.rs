//! End of an attempt at a step.

use crate::{
    NextAction, NonFiniteSite, Outcome, Scaler, Skipped,
    scaler::{EMPTY, State},
};
use gradscale::{
    gradscale_core::step_outcome::FirstNonFinite,
    sites::{Attempt, Finished},
};

impl Scaler {
    /// Ends one pass: takes the statistics of all stores since the last one, and decides the exponents of the next.
    /// `found_inf` is true if a gradient of a parameter is not finite, `repeatable` if the same batch can be run again.
    pub fn end_pass(&self, found_inf: bool, repeatable: bool) -> NextAction {
        let mut state = self.state();
        let State { sites, rows, order, failed } = &mut *state;
        let attempt = Attempt { found_inf, failed: *failed, repeatable, micro: 1 };
        let finished = sites.finish(rows, order, attempt);
        let named = |FirstNonFinite { site, kind, exponent }| NonFiniteSite {
            name: sites.name(order[site]).to_owned(),
            kind,
            exponent,
        };
        let end = match finished {
            Finished::Stepped => NextAction::Step,
            Finished::Repeat(_) => NextAction::Repeat,
            Finished::Skipped(blame, cause) => NextAction::Skip(Skipped { cause, site: blame.map(named) }),
        };
        *failed = if end == NextAction::Repeat { *failed + 1 } else { 0 };
        rows.fill(EMPTY);
        order.clear();
        end
    }

    /// Ends a pass without a step: the state is as before the pass.
    pub fn discard_pass(&self) {
        let mut state = self.state();
        let State { sites, rows, order, failed } = &mut *state;
        *failed = 0;
        rows.fill(EMPTY);
        if sites.repeats() && !order.is_empty() {
            // The attempt is ended as not finite outside of all sites, which changes no state and discards the
            // decisions in it.
            let nothing = Attempt { found_inf: true, failed: 0, repeatable: false, micro: 1 };
            sites.finish(rows, order, nothing);
        }
        order.clear();
    }

    /// Runs a batch until it fits or no repeat cures it. `pass` runs it forward and backward. It returns the values for
    /// the update, and true if a gradient of a parameter is not finite. The values of the pass that fits are returned.
    ///
    /// # Errors
    /// Errors of `pass`; the state is as before then.
    pub fn run_batch<T, E>(&self, mut pass: impl FnMut() -> Result<(T, bool), E>) -> Result<(Option<T>, Outcome), E> {
        self.discard_pass();
        let mut repeats = 0;
        loop {
            let (result, found_inf) = pass().inspect_err(|_| self.discard_pass())?;
            match self.end_pass(found_inf, true) {
                NextAction::Step => return Ok((Some(result), Outcome::Stepped { repeats })),
                NextAction::Repeat => repeats += 1,
                NextAction::Skip(skipped) => return Ok((None, Outcome::Skipped(skipped))),
            }
        }
    }
}
