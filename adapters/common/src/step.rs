//! The end of an attempt at a step.

use crate::{
    End, Outcome, Scaler, Skipped,
    scaler::{EMPTY, State},
};
use gradscale::{
    core::step::Blame,
    sites::{Attempt, Finished},
};

impl Scaler {
    /// Ends one pass: takes what all sites have stored since the last one, and decides the exponents of the next.
    /// `found_inf` says that a gradient of a parameter is not finite, `repeatable` that the same batch can be run again.
    pub fn end(&self, found_inf: bool, repeatable: bool) -> End {
        let mut state = self.state();
        let State { sites, rows, order, failed } = &mut *state;
        let attempt = Attempt { found_inf, failed: *failed, repeatable, micro: 1 };
        let finished = sites.finish(rows, order, attempt);
        let named = |Blame { site, kind, exponent }| (sites.name(order[site]).to_owned(), kind, exponent);
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

    /// Ends a pass that no step follows: all is as it was before.
    pub fn discard(&self) {
        let mut state = self.state();
        let State { sites, rows, order, failed } = &mut *state;
        *failed = 0;
        rows.fill(EMPTY);
        if sites.repeats() && !order.is_empty() {
            // What was not finite outside of all sites leaves no trace, nor does what was decided on the way.
            let nothing = Attempt { found_inf: true, failed: 0, repeatable: false, micro: 1 };
            sites.finish(rows, order, nothing);
        }
        order.clear();
    }

    /// Runs a batch until it fits or no repeat mends it. `pass` runs it forward and backward and says whether a gradient of
    /// a parameter is not finite, beside what the update needs; that of the pass that fits comes back.
    ///
    /// # Errors
    /// What `pass` says; all is as it was before then.
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
