//! End of an attempt at a step.

use crate::{
    End, Outcome, Scaler, Skipped,
    scaler::{EMPTY, State},
};
use gradscale::{
    gradscale_core::step_outcome::FirstNonFinite,
    sites::{Attempt, Finished},
};

impl Scaler {
    /// Ends one pass: takes the statistics of all stores since the last one, and decides the exponents of the next.
    /// `found_inf` is true if a gradient of a parameter is not finite, `repeatable` if the same batch can be run again.
    pub fn end(&self, found_inf: bool, repeatable: bool) -> End {
        let mut state = self.state();
        let State { sites, rows, order, failed } = &mut *state;
        let attempt = Attempt { found_inf, failed: *failed, repeatable, micro: 1 };
        let finished = sites.finish(rows, order, attempt);
        let named = |FirstNonFinite { site, kind, exponent }| (sites.name(order[site]).to_owned(), kind, exponent);
        let end = match finished {
            Finished::Stepped => End::Step,
            Finished::Repeat(_) => End::Repeat,
            Finished::Skipped(blame, cause) => End::Skip(Skipped { cause, site: blame.map(named) }),
        };
        *failed = if end == End::Repeat { *failed + 1 } else { 0 };
        rows.fill(EMPTY);
        order.clear();
        end
    }

    /// Ends a pass without a step: the state is as before the pass.
    pub fn discard(&self) {
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
    pub fn run<T, E>(&self, mut pass: impl FnMut() -> Result<(T, bool), E>) -> Result<(Option<T>, Outcome), E> {
        self.discard();
        let mut repeats = 0;
        loop {
            let (result, found_inf) = pass().inspect_err(|_| self.discard())?;
            match self.end(found_inf, true) {
                End::Step => return Ok((Some(result), Outcome::Stepped { repeats })),
                End::Repeat => repeats += 1,
                End::Skip(skipped) => return Ok((None, Outcome::Skipped(skipped))),
            }
        }
    }
}
