//! Sites: the exponents of single gradients.

use crate::{
    memory::{Plain, Tag, open, read, seal, write},
    row::{gs_row, row_at},
    status::{
        answer, gs_format,
        gs_status::{
            self, GS_ERROR_CORRUPTED, GS_ERROR_DETAIL, GS_ERROR_ENUM, GS_ERROR_FORMAT, GS_ERROR_NO_DECISION,
            GS_ERROR_VERSION,
        },
        store_format,
    },
};
use gradscale_core::{
    site::{Calls, Memory, Site, SiteConfig, SiteOutcome, Trigger, WORDS},
    solve::{Choice, LimitedBy, NoDecision},
    stats::Stats,
    store_format::StoreFormat,
};

/// Number of 64-bit words of a gs_site.
pub const GS_SITE_WORDS: usize = 46;
const _: () = assert!(GS_SITE_WORDS == WORDS + 2, "cbindgen wants a number");

/// Number of times that a store runs in one step.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_calls {
    /// The store runs once in a step.
    GS_CALLS_ONE = 0,
    /// The store runs several times (for example in a recurrent cell, a shared layer, or with micro-batches): the calls
    /// share the exponent, and their rows merge.
    GS_CALLS_SEVERAL = 1,
}

/// Influence of earlier rows on a decision.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_history {
    /// Earlier rows have no influence on a decision.
    GS_HISTORY_NONE = 0,
    /// The lowest ceiling of the last 16 rows is an additional limit.
    GS_HISTORY_MIN = 1,
    /// History of the last 16 rows: the exponent serves as many of them as FP16 can, and the headroom follows their
    /// spread.
    GS_HISTORY_RING = 2,
}

/// Settings of a site. gs_site_config_init fills them with the defaults; then change single ones.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct gs_site_config {
    /// Size of this structure in bytes: sizeof(gs_site_config).
    pub size: u32,
    /// Number of steps from one decision to the next, at least 1.
    pub interval: u32,
    /// Number of calls in a step, a gs_calls.
    pub calls: u32,
    /// Influence of earlier rows, a gs_history.
    pub history: u32,
    /// Maximum fraction of the values that may flush, 1e-6 to 1.
    pub gamma: f64,
    /// Number of exponents above the threshold that the rule goes if there is enough range: 0 to 30.
    pub window: i32,
    /// Headroom between the largest value and the overflow threshold, in bits: 2 to 30.
    pub headroom: i32,
    /// Outlier limit: batches more than this number of exponents above the whole history are skipped. 8 to 100, or 0
    /// for no limit. Needs GS_HISTORY_RING.
    pub outliers: i32,
    /// Format of the store, a gs_format: GS_FP16, GS_E5M2 or GS_E4M3. The site's rows must have it, too.
    pub format: u32,
}

// SAFETY: numbers.
unsafe impl Plain for gs_site_config {}

/// Site: initialised by gs_site_init, and then changed by functions of this library only. It may be copied and stored
/// in a file, on machines of one byte order; there is nothing to free.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct gs_site {
    /// Private state of the site; do not modify.
    pub words: [i64; GS_SITE_WORDS],
}

// SAFETY: integers.
unsafe impl Plain for gs_site {}

/// Instructions of a site for the coming step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct gs_request {
    /// 1: first observe the f32 values (gs_row_init with exponent and detail, gs_row_observe), and decide from that row
    /// (gs_site_decide) before anything is stored.
    pub decides_in_step: u32,
    /// Level of detail of the row for the coming step, a gs_detail.
    pub detail: u32,
    /// 1 if the site has an exponent.
    pub has_exponent: u32,
    /// Exponent in force, 0 before the first decision.
    pub exponent: i32,
}

// SAFETY: integers.
unsafe impl Plain for gs_request {}

/// Constraint that determined the exponent of a decision.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_limit {
    /// Flush threshold: it is kept, and the limit against overflow allowed no higher exponent.
    GS_LIMIT_THRESHOLD = 0,
    /// Normal range: the threshold is kept even with subnormals counted as flushed, because there was enough range.
    GS_LIMIT_NORMAL_RANGE = 1,
    /// Limit against overflow: because of it the flush threshold is missed.
    GS_LIMIT_OVERFLOW = 2,
    /// Range of exponents that one row can give: values are too far outside the range of halves.
    GS_LIMIT_RANGE = 3,
    /// Lower limit 1 of the scale: the required scale was below it, and the rule does not go below 1.
    GS_LIMIT_ONE = 4,
    /// Largest magnitude: it alone decides. No site of this interface uses this rule.
    GS_LIMIT_AMAX = 5,
}

/// Event that caused a site to decide.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_trigger {
    /// The site had no exponent yet.
    GS_TRIGGER_FIRST = 0,
    /// The interval since the last decision was over.
    GS_TRIGGER_INTERVAL = 1,
    /// The site overflowed, or precedes the site that did.
    GS_TRIGGER_OVERFLOW = 2,
    /// The last step was skipped, or its row contained infinities, or its values were far below the history.
    GS_TRIGGER_AFTER_SKIP = 3,
    /// The batch overflowed and is repeated.
    GS_TRIGGER_REPEAT = 4,
}

/// Last decision of a site.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct gs_decision {
    /// Predicted fraction of the values that will flush; NaN without a prediction.
    pub flushed_predicted: f64,
    /// Exponent that the site uses since this decision.
    pub exponent: i32,
    /// Decided exponent relative to the row's exponent.
    pub exponent_delta: i32,
    /// Constraint that determined the exponent, a gs_limit.
    pub limited_by: u32,
    /// Event that caused the decision, a gs_trigger.
    pub trigger: u32,
}

// SAFETY: numbers.
unsafe impl Plain for gs_decision {}

/// Result of a step, as seen by one site.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_site_outcome {
    /// The optimizer updated the parameters.
    GS_SITE_STEPPED = 0,
    /// The step was skipped, and this site is the first that overflowed, or precedes it.
    GS_SITE_SKIPPED = 1,
    /// The step was skipped, and this site is downstream of the first that overflowed: its row has no usable values.
    GS_SITE_SKIPPED_DOWNSTREAM = 2,
    /// The step was skipped for a reason that no exponent cures. All state is as before the step.
    GS_SITE_ROLLED_BACK = 3,
}

impl gs_site {
    pub(crate) fn open(&self) -> Result<Site, gs_status> {
        let words = open(Tag::Site, &self.words)?;
        Ok(Site::from_words(words.try_into().map_err(|_| GS_ERROR_CORRUPTED)?)?)
    }

    pub(crate) fn from_site(site: &Site) -> Self {
        Self { words: seal(Tag::Site, &site.to_words()) }
    }
}

/// Returns an error unless a row is one of the site's format: counts of another format say nothing about its stores.
pub(crate) fn expect_format(site: &Site, row: &Stats) -> Result<(), gs_status> {
    if row.convention().format() == site.config().format.format() { Ok(()) } else { Err(GS_ERROR_FORMAT) }
}

/// # Safety
/// As for [`read`] and [`write`].
unsafe fn change(site: *mut gs_site, by: impl FnOnce(&mut Site) -> Result<(), gs_status>) -> Result<(), gs_status> {
    // SAFETY: promised by the caller.
    let mut inside = unsafe { read(site)? }.open()?;
    by(&mut inside)?;
    // SAFETY: promised by the caller.
    unsafe { write(site, gs_site::from_site(&inside)) }
}

/// Fills config with the default settings: FP16, every 10 steps, with a history of 16 rows, at most one value in a
/// thousand flushed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_config_init(config: *mut gs_site_config) -> gs_status {
    // SAFETY: promised by the caller.
    unsafe { gs_site_config_init_format(config, gs_format::GS_FP16 as u32) }
}

/// Fills config with the default settings for stores in a format: GS_FP16, GS_E5M2 or GS_E4M3. The window is that of the
/// format, so do not change config->format alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_config_init_format(config: *mut gs_site_config, format: u32) -> gs_status {
    let usual = match store_format(format) {
        Ok(format) => SiteConfig::exact().with_format(format),
        Err(status) => return status,
    };
    let new = gs_site_config {
        size: SIZE,
        interval: usual.interval,
        calls: gs_calls::GS_CALLS_ONE as u32,
        history: gs_history::GS_HISTORY_RING as u32,
        gamma: f64::from(usual.exact.ppm()) / 1e6,
        window: usual.exact.window(),
        headroom: usual.exact.headroom(),
        outliers: 0,
        format,
    };
    // SAFETY: promised by the caller.
    answer(|| unsafe { write(config, new) })
}

#[expect(clippy::cast_possible_truncation, reason = "some forty bytes")]
const SIZE: u32 = size_of::<gs_site_config>() as u32;

/// Initialises a site without an exponent. config may be NULL for the default settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_init(site: *mut gs_site, config: *const gs_site_config) -> gs_status {
    answer(|| {
        let usual = SiteConfig::exact();
        // SAFETY: promised by the caller.
        let config = match unsafe { crate::casts::read_if(config)? } {
            None => usual,
            Some(given) if given.size != SIZE => return Err(GS_ERROR_VERSION),
            Some(given) => SiteConfig {
                interval: given.interval,
                calls: match given.calls {
                    n if n == gs_calls::GS_CALLS_ONE as u32 => Calls::One,
                    n if n == gs_calls::GS_CALLS_SEVERAL as u32 => Calls::Several,
                    _ => return Err(GS_ERROR_ENUM),
                },
                memory: match given.history {
                    n if n == gs_history::GS_HISTORY_NONE as u32 => Memory::None,
                    n if n == gs_history::GS_HISTORY_MIN as u32 => Memory::Least,
                    n if n == gs_history::GS_HISTORY_RING as u32 => Memory::Ring,
                    _ => return Err(GS_ERROR_ENUM),
                },
                format: store_format(given.format)?,
                outliers: (given.outliers != 0).then_some(given.outliers),
                exact: usual.exact.with_gamma(given.gamma)?.with_window(given.window)?.with_headroom(given.headroom)?,
                ..usual
            },
        };
        // SAFETY: promised by the caller.
        unsafe { write(site, gs_site::from_site(&Site::new(config)?)) }
    })
}

/// Returns the format of the site's stores in format, a gs_format.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_format(site: *const gs_site, format: *mut u32) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let site = unsafe { read(site)? }.open()?;
        let number = match site.config().format {
            StoreFormat::Fp16 => gs_format::GS_FP16,
            StoreFormat::E5m2 => gs_format::GS_E5M2,
            StoreFormat::E4m3 => gs_format::GS_E4M3,
        };
        // SAFETY: promised by the caller.
        unsafe { write(format, number as u32) }
    })
}

/// Returns the instructions for the coming step in request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_request(site: *const gs_site, request: *mut gs_request) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let site = unsafe { read(site)? }.open()?;
        let asked = site.request();
        let new = gs_request {
            decides_in_step: u32::from(asked.at_once),
            detail: asked.detail.code(),
            has_exponent: u32::from(site.alpha().is_some()),
            exponent: site.alpha().unwrap_or(0),
        };
        // SAFETY: promised by the caller.
        unsafe { write(request, new) }
    })
}

/// Decides inside the step, from a row with a histogram of the values to be stored, and returns the exponent for the
/// store. If nothing can be decided (all values are zero, or some are not finite), it is the exponent in force, or
/// incoming: the exponent of the site from which the gradient comes, 0 for the loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_decide(
    site: *mut gs_site, row: *const gs_row, incoming: i32, exponent: *mut i32,
) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let row = unsafe { row_at(row)? };
        // SAFETY: promised by the caller.
        let mut inside = unsafe { read(site)? }.open()?;
        expect_format(&inside, &row)?;
        let verdict = inside.exact(&row);
        if verdict == Err(NoDecision::Detail) {
            return Err(GS_ERROR_DETAIL);
        }
        let alpha = inside.decide(verdict, row.exponent()).unwrap_or(incoming);
        // SAFETY: promised by the caller. The exponent is written first, so that nothing is decided if that fails.
        unsafe {
            write(exponent, alpha)?;
            write(site, gs_site::from_site(&inside))
        }
    })
}

/// Takes the row of a step, merged over all micro-batches and calls, and the step's result (gs_site_outcome). Call it
/// once for each site and step; gs_step_end does it for all sites.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_finish(site: *mut gs_site, row: *const gs_row, outcome: u32) -> gs_status {
    answer(|| {
        let end = match outcome {
            n if n == gs_site_outcome::GS_SITE_STEPPED as u32 => SiteOutcome::Stepped,
            n if n == gs_site_outcome::GS_SITE_SKIPPED as u32 => SiteOutcome::Skipped,
            n if n == gs_site_outcome::GS_SITE_SKIPPED_DOWNSTREAM as u32 => SiteOutcome::SkippedDownstream,
            n if n == gs_site_outcome::GS_SITE_ROLLED_BACK as u32 => SiteOutcome::RolledBack,
            _ => return Err(GS_ERROR_ENUM),
        };
        // SAFETY: promised by the caller.
        unsafe {
            let row = row_at(row)?;
            change(site, |site| {
                expect_format(site, &row)?;
                site.finish(&row, end);
                Ok(())
            })
        }
    })
}

/// Returns the last decision of a site in decision, or GS_ERROR_NO_DECISION if there was none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_decision(site: *const gs_site, decision: *mut gs_decision) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let site = unsafe { read(site)? }.open()?;
        let last = site.history().last().ok_or(GS_ERROR_NO_DECISION)?;
        let Choice { k, held, gamma } = last.choice;
        let limit = match held {
            LimitedBy::Threshold => gs_limit::GS_LIMIT_THRESHOLD,
            LimitedBy::NormalRange => gs_limit::GS_LIMIT_NORMAL_RANGE,
            LimitedBy::Overflow => gs_limit::GS_LIMIT_OVERFLOW,
            LimitedBy::Range => gs_limit::GS_LIMIT_RANGE,
            LimitedBy::One => gs_limit::GS_LIMIT_ONE,
            LimitedBy::Amax => gs_limit::GS_LIMIT_AMAX,
        };
        let trigger = match last.trigger {
            Trigger::First => gs_trigger::GS_TRIGGER_FIRST,
            Trigger::Interval => gs_trigger::GS_TRIGGER_INTERVAL,
            Trigger::Overflow => gs_trigger::GS_TRIGGER_OVERFLOW,
            Trigger::AfterSkip => gs_trigger::GS_TRIGGER_AFTER_SKIP,
            Trigger::Repeat => gs_trigger::GS_TRIGGER_REPEAT,
        };
        let new = gs_decision {
            flushed_predicted: gamma,
            exponent: last.alpha,
            exponent_delta: k,
            limited_by: limit as u32,
            trigger: trigger as u32,
        };
        // SAFETY: promised by the caller.
        unsafe { write(decision, new) }
    })
}
