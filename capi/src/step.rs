//! End of a step, for all sites.

use crate::{
    memory::{Plain, checked, slice, slice_apart, write},
    row::gs_row,
    site::{expect_format, gs_site},
    status::{answer, gs_status},
};
use gradscale_core::{
    site::{Calls, SiteOutcome},
    step_outcome::{self, FirstNonFinite, NonFiniteKind},
};

/// Next action of the training loop after a step.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_next {
    /// Update the parameters with the gradients of this step.
    GS_NEXT_STEP = 0,
    /// Update nothing, and run the same batch again.
    GS_NEXT_REPEAT = 1,
    /// Update nothing, and continue with the next batch.
    GS_NEXT_SKIP = 2,
}

/// Kind of non-finite value at a site.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_nonfinite {
    /// All values of the site were finite.
    GS_NONFINITE_NONE = 0,
    /// Finite values were too large for the store.
    GS_NONFINITE_OVERFLOW = 1,
    /// Infinities arrived although nothing upstream had overflowed.
    GS_NONFINITE_INFINITE = 2,
    /// NaN arrived although nothing upstream had overflowed: not a scaling problem.
    GS_NONFINITE_NAN = 3,
}

/// Outcome of a step over all sites.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct gs_outcome {
    /// Next action of the training loop, a gs_next.
    pub next: u32,
    /// Kind of value at the site, a gs_nonfinite.
    pub nonfinite: u32,
    /// First site with values that are not finite; count if there is none.
    pub site: u64,
}

// SAFETY: integers.
unsafe impl Plain for gs_outcome {}

/// Ends a step for count sites, with rows in the order of the backward pass. found_inf is not 0 if some gradient of a
/// parameter is not finite; then nothing must be updated. repeatable is not 0 if the same batch can be run again, so
/// that no batch is lost; failed_attempts is the number of repeats in this step so far. If a site or row is invalid,
/// none of them changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_step_end(
    sites: *mut gs_site, rows: *const gs_row, count: usize, found_inf: u32, repeatable: u32, failed_attempts: u32,
    outcome: *mut gs_outcome,
) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let (sites, rows) = unsafe {
            let rows = slice(rows, count)?;
            (slice_apart(sites, count, rows)?, rows)
        };
        checked(outcome, 1)?;
        let open = |(site, row): (&gs_site, &gs_row)| -> Result<_, gs_status> { Ok((site.open()?, row.open()?)) };
        let opened = || sites.iter().zip(rows).map(open);
        let mut blame: Option<FirstNonFinite> = None;
        for (at, pair) in opened().enumerate() {
            let (site, row) = pair?;
            expect_format(&site, &row)?;
            if blame.is_none() {
                blame = step_outcome::find_first_non_finite([row.counts()])
                    .map(|blame| FirstNonFinite { site: at, ..blame });
            }
        }
        let blamed = blame.and_then(|blame| opened().nth(blame.site)).transpose()?;
        let stepped = found_inf == 0;
        let (mut again, mut lost, mut excess) = (false, false, 0);
        if let (Some((site, row)), Some(blame), false) = (&blamed, blame, stepped) {
            let outlier = blame.kind != NonFiniteKind::Nan && site.is_outlier(row);
            if !outlier && site.config().repeats() && step_outcome::may_repeat(site.config().calls, failed_attempts) {
                again = repeatable != 0;
                lost = !again;
                excess = site.bits_above_history(row);
            }
        }
        let next = match (stepped, again) {
            (true, _) => gs_next::GS_NEXT_STEP,
            (false, true) => gs_next::GS_NEXT_REPEAT,
            (false, false) => gs_next::GS_NEXT_SKIP,
        };
        let nonfinite = match blame.map(|blame| blame.kind) {
            None => gs_nonfinite::GS_NONFINITE_NONE,
            Some(NonFiniteKind::Overflow) => gs_nonfinite::GS_NONFINITE_OVERFLOW,
            Some(NonFiniteKind::Infinite) => gs_nonfinite::GS_NONFINITE_INFINITE,
            Some(NonFiniteKind::Nan) => gs_nonfinite::GS_NONFINITE_NAN,
        };
        let first = blame.map_or(count, |blame| blame.site) as u64;

        for (at, (place, row)) in sites.iter_mut().zip(rows).enumerate() {
            let (mut site, row) = (place.open()?, row.open()?);
            let behind = !stepped && blame.is_some_and(|blame| at > blame.site);
            if behind && site.config().calls == Calls::Several {
                site.assume_upstream_growth(excess);
            }
            if again {
                site.repeat(&row);
            } else {
                // A batch that no exponent cures says nothing about the next.
                let void = site.config().repeats() && !lost;
                let end = step_outcome::site_outcome(stepped, void, blame, at);
                if end == SiteOutcome::SkippedDownstream {
                    site.limit_from_upstream(excess);
                }
                site.finish(&row, end);
            }
            *place = gs_site::from_site(&site);
        }
        let done = gs_outcome { next: next as u32, nonfinite: nonfinite as u32, site: first };
        // SAFETY: promised by the caller, and checked.
        unsafe { write(outcome, done) }
    })
}
