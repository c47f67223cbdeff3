//! Sites: the exponent of one gradient.

use crate::{
    memory::{Plain, Tag, open, read, seal, write},
    row::{gs_row, row_at},
    status::{
        answer,
        gs_status::{self, GS_CHOICE, GS_DAMAGED, GS_DETAIL, GS_NOTHING, GS_VERSION},
    },
};
use gradscale_core::{
    site::{Calls, Memory, Site, SiteConfig, StepEnd, Trigger, WORDS},
    solve::{Choice, LimitedBy, NoDecision},
};

/// Words of a site.
pub const GS_SITE_WORDS: usize = 46;
const _: () = assert!(GS_SITE_WORDS == WORDS + 2, "cbindgen wants a number");

/// How often a store runs in one step.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_calls {
    /// Once.
    GS_ONE_CALL = 0,
    /// Several times (a recurrent cell, a shared layer, micro-batches): the calls share the exponent, their rows merge.
    GS_SEVERAL_CALLS = 1,
}

/// What a decision knows of the rows before the one that decides.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_memory {
    /// Nothing.
    GS_NO_MEMORY = 0,
    /// The least ceiling of the last 16 rows limits it.
    GS_LEAST = 1,
    /// The last 16 rows: the exponent serves all that FP16 can serve together, and the room follows how they move.
    GS_RING = 2,
}

/// How a site decides. gs_site_config_init fills it; change what is to be different.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct gs_site_config {
    /// sizeof(gs_site_config).
    pub size: u32,
    /// Steps from one decision to the next, at least 1.
    pub interval: u32,
    /// gs_calls.
    pub calls: u32,
    /// gs_memory.
    pub memory: u32,
    /// The share of the values that may flush, 1e-6 to 1.
    pub gamma: f64,
    /// How far above the threshold the exponent goes where there is room: 0 to 30.
    pub window: i32,
    /// Bits kept free above: 2 to 30.
    pub room: i32,
    /// Batches that lie more than so many exponents above all rows remembered are left out: 8 to 100, or 0 for none.
    /// Needs GS_RING.
    pub outliers: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: numbers.
unsafe impl Plain for gs_site_config {}

/// One site: initialised by gs_site_init, and then changed by functions of this library only. It may be copied and kept
/// in a file, on machines of one byte order; there is nothing to free.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct gs_site {
    /// Not to be touched.
    pub words: [i64; GS_SITE_WORDS],
}

// SAFETY: integers.
unsafe impl Plain for gs_site {}

/// What a site wants of the coming step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct gs_request {
    /// 1: look at the f32 values first (gs_row_init with exponent and detail, gs_row_observe), and decide from that row
    /// (gs_site_decide) before anything is stored.
    pub at_once: u32,
    /// gs_detail of the row.
    pub detail: u32,
    /// 1 if the site has an exponent.
    pub decided: u32,
    /// The exponent in force, 0 before the first decision.
    pub exponent: i32,
}

// SAFETY: integers.
unsafe impl Plain for gs_request {}

/// What bound a decision.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_limit {
    /// The threshold is kept, and what lies above allowed no more.
    GS_LIMIT_THRESHOLD = 0,
    /// The threshold is kept even for subnormals: there was room.
    GS_LIMIT_NORMAL_RANGE = 1,
    /// The threshold is missed: the overflow side bound.
    GS_LIMIT_OVERFLOW = 2,
    /// The end of what one row can give.
    GS_LIMIT_RANGE = 3,
    /// The scale needed was below 1, and the rule does not go there.
    GS_LIMIT_ONE = 4,
    /// The largest magnitude decides. No site of this interface does so.
    GS_LIMIT_AMAX = 5,
}

/// What made a site decide.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_trigger {
    /// It had no exponent.
    GS_TRIGGER_FIRST = 0,
    /// Its interval was over.
    GS_TRIGGER_INTERVAL = 1,
    /// It overflowed, or came before the site that did.
    GS_TRIGGER_OVERFLOW = 2,
    /// The last step was skipped, or its row held infinities, or lay far below those before.
    GS_TRIGGER_AFTER_SKIP = 3,
    /// The batch did not fit, and is repeated.
    GS_TRIGGER_REPEAT = 4,
}

/// The last decision of a site.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct gs_decision {
    /// The share of the values that will flush, as predicted; NaN where it was not.
    pub gamma: f64,
    /// The exponent decided.
    pub exponent: i32,
    /// The same, relative to the row's exponent.
    pub k: i32,
    /// gs_limit.
    pub limit: u32,
    /// gs_trigger.
    pub trigger: u32,
}

// SAFETY: numbers.
unsafe impl Plain for gs_decision {}

/// How a step ended, for one site.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum gs_end {
    /// The optimizer stepped.
    GS_STEPPED = 0,
    /// The step was skipped, and this site is the first that overflowed, or came before it.
    GS_SKIPPED_HERE = 1,
    /// The step was skipped, and this site came after the first that overflowed: its row says nothing.
    GS_SKIPPED_AFTER = 2,
    /// The step was left out for a reason that no exponent mends: all is as it was before.
    GS_VOID = 3,
}

impl gs_site {
    pub(crate) fn open(&self) -> Result<Site, gs_status> {
        let words = open(Tag::Site, &self.words)?;
        Ok(Site::from_words(words.try_into().map_err(|_| GS_DAMAGED)?)?)
    }

    pub(crate) fn from_site(site: &Site) -> Self {
        Self { words: seal(Tag::Site, &site.to_words()) }
    }
}

/// # Safety
/// As [`read`] and [`write`].
unsafe fn change(site: *mut gs_site, by: impl FnOnce(&mut Site) -> Result<(), gs_status>) -> Result<(), gs_status> {
    // SAFETY: promised by the caller.
    let mut inside = unsafe { read(site)? }.open()?;
    by(&mut inside)?;
    // SAFETY: promised by the caller.
    unsafe { write(site, gs_site::from_site(&inside)) }
}

/// The usual settings: FP16, every 10 steps, with the memory of 16 rows, at most one value in a thousand flushed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_config_init(config: *mut gs_site_config) -> gs_status {
    let usual = SiteConfig::exact();
    let new = gs_site_config {
        size: SIZE,
        interval: usual.interval,
        calls: gs_calls::GS_ONE_CALL as u32,
        memory: gs_memory::GS_RING as u32,
        gamma: f64::from(usual.exact.ppm()) / 1e6,
        window: usual.exact.window(),
        room: usual.exact.room(),
        outliers: 0,
        reserved: 0,
    };
    // SAFETY: promised by the caller.
    answer(|| unsafe { write(config, new) })
}

#[expect(clippy::cast_possible_truncation, reason = "some forty bytes")]
const SIZE: u32 = size_of::<gs_site_config>() as u32;

/// A site without an exponent. config may be NULL: the usual settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_init(site: *mut gs_site, config: *const gs_site_config) -> gs_status {
    answer(|| {
        let usual = SiteConfig::exact();
        // SAFETY: promised by the caller.
        let config = match unsafe { crate::casts::read_if(config)? } {
            None => usual,
            Some(given) if given.size != SIZE || given.reserved != 0 => return Err(GS_VERSION),
            Some(given) => SiteConfig {
                interval: given.interval,
                calls: match given.calls {
                    n if n == gs_calls::GS_ONE_CALL as u32 => Calls::One,
                    n if n == gs_calls::GS_SEVERAL_CALLS as u32 => Calls::Several,
                    _ => return Err(GS_CHOICE),
                },
                memory: match given.memory {
                    n if n == gs_memory::GS_NO_MEMORY as u32 => Memory::None,
                    n if n == gs_memory::GS_LEAST as u32 => Memory::Least,
                    n if n == gs_memory::GS_RING as u32 => Memory::Ring,
                    _ => return Err(GS_CHOICE),
                },
                outliers: (given.outliers != 0).then_some(given.outliers),
                exact: usual.exact.with_gamma(given.gamma)?.with_window(given.window)?.with_room(given.room)?,
                ..usual
            },
        };
        // SAFETY: promised by the caller.
        unsafe { write(site, gs_site::from_site(&Site::new(config)?)) }
    })
}

/// What the coming step should do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_request(site: *const gs_site, request: *mut gs_request) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let site = unsafe { read(site)? }.open()?;
        let asked = site.request();
        let new = gs_request {
            at_once: u32::from(asked.at_once),
            detail: asked.detail.code(),
            decided: u32::from(site.alpha().is_some()),
            exponent: site.alpha().unwrap_or(0),
        };
        // SAFETY: promised by the caller.
        unsafe { write(request, new) }
    })
}

/// Decides at once, from a row with a histogram of the values that are to be stored, and says the exponent to store with.
/// Where nothing can be decided (all values are zero, or some are not finite) that is the one in force, or incoming: the
/// exponent of the site from which the gradient comes, 0 for the loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_decide(
    site: *mut gs_site, row: *const gs_row, incoming: i32, exponent: *mut i32,
) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let row = unsafe { row_at(row)? };
        // SAFETY: promised by the caller.
        let mut inside = unsafe { read(site)? }.open()?;
        let verdict = inside.exact(&row);
        if verdict == Err(NoDecision::Detail) {
            return Err(GS_DETAIL);
        }
        let alpha = inside.decide(verdict, row.exponent()).unwrap_or(incoming);
        // SAFETY: promised by the caller. The exponent first: where it has no place, nothing is decided.
        unsafe {
            write(exponent, alpha)?;
            write(site, gs_site::from_site(&inside))
        }
    })
}

/// Takes the row of a step, of all micro-batches and calls, and how the step ended (gs_end). Once for each site and step;
/// gs_step_end does it for all sites.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_finish(site: *mut gs_site, row: *const gs_row, end: u32) -> gs_status {
    answer(|| {
        let end = match end {
            n if n == gs_end::GS_STEPPED as u32 => StepEnd::Stepped,
            n if n == gs_end::GS_SKIPPED_HERE as u32 => StepEnd::SkippedHere,
            n if n == gs_end::GS_SKIPPED_AFTER as u32 => StepEnd::SkippedAfter,
            n if n == gs_end::GS_VOID as u32 => StepEnd::Void,
            _ => return Err(GS_CHOICE),
        };
        // SAFETY: promised by the caller.
        unsafe {
            let row = row_at(row)?;
            change(site, |site| {
                site.finish(&row, end);
                Ok(())
            })
        }
    })
}

/// The last decision of a site, or GS_NOTHING.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gs_site_decision(site: *const gs_site, decision: *mut gs_decision) -> gs_status {
    answer(|| {
        // SAFETY: promised by the caller.
        let site = unsafe { read(site)? }.open()?;
        let last = site.history().last().ok_or(GS_NOTHING)?;
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
        let new = gs_decision { gamma, exponent: last.alpha, k, limit: limit as u32, trigger: trigger as u32 };
        // SAFETY: promised by the caller.
        unsafe { write(decision, new) }
    })
}
