//! Names, slots, exponents and state machines of all sites that train together.
//!
//! A [`crate::Trainer`] has its own. For a runtime of somebody's own, [`Sites`] is all of gradient scaling that does not
//! compute: it says at which exponents a step stores, takes what its stores have seen, and says how the step ended. What
//! has not been finished in order to be run again ([`Attempt::repeatable`]) is skipped, and remembered longer.
//!
//! ```
//! use gradscale::{Method, core::stats::{Convention, Detail, Stats}, sites::{Attempt, Finished, Sites, SlotKind}};
//!
//! let mut sites = Sites::new("gs:interval=1".parse::<Method>()?.scaling)?;
//! let slot = sites.slot("layer/dgrad", SlotKind::Site)?;
//! let row = |exponent: i32, gradient: f32| {
//!     let mut row = Stats::new(Convention::FP16, exponent, Detail::Full);
//!     row.observe(&[gradient * 2f32.powi(exponent)]);
//!     row
//! };
//! // The first step decides inside itself, from its values as they are.
//! sites.decide_from(slot, &row(0, 1e-6), 0);
//! // Every step hands in its rows, by slot, and the order in which it stored.
//! let mut rows = vec![row(0, 0.0); sites.len()];
//! rows[usize::from(slot.0)] = row(sites.exponent(slot), 1e-6);
//! let attempt = Attempt { found_inf: false, failed: 0, repeatable: false, micro: 1 };
//! assert!(matches!(sites.finish(&rows, &[slot], attempt), Finished::Stepped));
//! assert_eq!(sites.exponent(slot), 6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod report;
mod saved;
mod warning;

pub use report::SiteReport;
pub use saved::SavedSite;
pub use warning::LossScaleWarning;

use crate::{Scaling, SharedLayers, TraceError, error::TraceErrorKind};
use gradscale_core::{
    backend::Slot,
    loss_scale::{Feedback, Fixed, LossScale},
    scaled::Scaled,
    site::{Calls, Site, SiteConfig, StepEnd},
    solve::{Choice, ConfigError, NoDecision},
    stats::{Detail, Stats},
    step::{self, Blame, Kind},
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotKind {
    /// 0 and 1: unscaled data, and the scratch of decisions.
    Reserved,
    /// Gradient of a parameter: f32, at exponent 0.
    Parameter,
    /// A store of the forward pass: half, at exponent 0.
    Forward,
    /// A cast site of the backward pass.
    Site,
}

/// Why a step was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Values were not finite, and no scale mends that; or the method's only answer to an overflow is to skip.
    NotFinite,
    /// It lies further above the last steps than the method takes (`outliers=`).
    Outlier,
    /// It has to be run again by the caller, since its inputs are not all on the device any more.
    Again,
    /// It was repeated three times, and overflowed each time.
    Repeats,
}

/// How an attempt at a step ended. The index of a [`Blame`] is that in the order of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// Parameters are updated.
    Stepped,
    /// Nothing has changed, and the same batch is to be run again.
    Repeat(Blame),
    /// Nothing has changed, and the batch is left out.
    Skipped(Option<Blame>, Cause),
}

/// What is known of an attempt beside its rows.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// Some parameter gradient is not finite.
    pub found_inf: bool,
    /// Attempts at this step that failed before.
    pub failed: u32,
    /// Whether the batch can be run again.
    pub repeatable: bool,
    /// Micro-batches whose rows have added up.
    pub micro: u32,
}

/// A decision that was made inside the attempt in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub slot: Slot,
    pub verdict: Result<Choice, NoDecision>,
    pub measured_at: i32,
    pub incoming: i32,
}

#[derive(Clone, Debug)]
struct Entry {
    name: String,
    kind: SlotKind,
    site: Option<Site>,
    /// The last row in which something was stored.
    row: Option<Stats>,
    /// Finite values that overflowed so far.
    overflows: u64,
}

/// All sites that train together, under one method. The first two slots are reserved: [`Slot::ONE`] for values that are not
/// scaled, [`Slot::PROBE`] for a decision's scratch.
#[derive(Clone, Debug)]
pub struct Sites {
    entries: Vec<Entry>,
    index: HashMap<String, Slot>,
    exponents: Vec<i32>,
    scaling: Scaling,
    /// Since the last attempt ended.
    decided: Vec<Decided>,
    /// Exponents that sites had decided when the last step but one ended, by slot, and whether the last step changed one.
    settled: Vec<Option<i32>>,
    moved: bool,
    /// The exponent of the loss scale in the last step.
    loss_scale_before: i32,
}

impl Sites {
    /// No sites yet.
    ///
    /// # Errors
    /// [`ConfigError`] for numbers of a rule that make no sense.
    pub fn new(scaling: Scaling) -> Result<Self, ConfigError> {
        if let Scaling::Gradient(gradient) = &scaling {
            Site::new(gradient.site)?;
        }
        let (entries, exponents, decided, settled) = Default::default();
        let (index, moved, loss_scale_before) = (HashMap::new(), false, 0);
        let mut sites = Self { entries, index, exponents, scaling, decided, settled, moved, loss_scale_before };
        sites.push("one", SlotKind::Reserved);
        sites.push("probe", SlotKind::Reserved);
        Ok(sites)
    }

    /// Slots, the two reserved ones among them: the rows of [`Sites::finish`].
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "two slots are always there")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// How gradients are scaled, with the state of a loss scale.
    #[must_use]
    pub const fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// The same slots under another scaling, with nothing observed yet.
    pub(crate) fn with_scaling(&self, scaling: Scaling) -> Result<Self, ConfigError> {
        let mut sites = Self::new(scaling)?;
        for entry in self.entries.iter().skip(2) {
            // They had room before.
            let _ = sites.push(&entry.name, entry.kind);
        }
        Ok(sites)
    }

    /// Replaces the loss scale by a fixed one.
    pub(crate) fn fix_loss_scale(&mut self, fixed: Fixed) {
        self.scaling = Scaling::Loss(LossScale::Fixed(fixed));
        self.spread();
    }

    /// What a slot is for.
    pub(crate) fn kind(&self, slot: Slot) -> SlotKind {
        self.entries[usize::from(slot.0)].kind
    }

    /// The slot of that name, new if there was none.
    ///
    /// # Errors
    /// [`TraceError`] beyond 65534 slots.
    pub fn slot(&mut self, name: &str, kind: SlotKind) -> Result<Slot, TraceError> {
        if let Some(&slot) = self.index.get(name) {
            return Ok(slot);
        }
        self.push(name, kind).ok_or_else(|| TraceError::new(name, TraceErrorKind::Sites))
    }

    fn push(&mut self, name: &str, kind: SlotKind) -> Option<Slot> {
        // The table has u16 slots, and ranges of them.
        let slot = u16::try_from(self.entries.len()).ok().filter(|&slot| slot < u16::MAX).map(Slot)?;
        let site = match (&self.scaling, kind) {
            (Scaling::Gradient(gradient), SlotKind::Site) => Site::new(gradient.site).ok(),
            _ => None,
        };
        self.entries.push(Entry { name: name.to_owned(), kind, site, row: None, overflows: 0 });
        self.exponents.push(0);
        self.index.insert(name.to_owned(), slot);
        self.spread();
        Some(slot)
    }

    /// Several launches of a step store into this slot.
    pub fn share(&mut self, slot: Slot) {
        let entry = &mut self.entries[usize::from(slot.0)];
        if let Some(site) = &entry.site
            && site.config().calls == Calls::One
            && let Ok(mut shared) = Site::new(SiteConfig { calls: Calls::Several, ..*site.config() })
        {
            shared.restore(&site.state());
            entry.site = Some(shared);
        }
    }

    /// Exponents in force, by slot.
    #[must_use]
    pub fn exponents(&self) -> &[i32] {
        &self.exponents
    }

    /// The exponent in force at a slot.
    ///
    /// # Panics
    /// If there is no such slot, here and below.
    #[must_use]
    pub fn exponent(&self, slot: Slot) -> i32 {
        self.exponents[usize::from(slot.0)]
    }

    /// At which exponent the scratch of a decision is measured.
    pub(crate) fn set_probe(&mut self, exponent: i32) {
        self.exponents[usize::from(Slot::PROBE.0)] = exponent;
    }

    /// The most that a site among `slots` wants to be observed.
    #[must_use]
    pub fn detail(&self, slots: &[Slot]) -> Detail {
        let requests = slots.iter().filter_map(|slot| self.site(*slot)).map(|site| site.request().detail);
        requests.fold(Detail::Counts, Ord::max)
    }

    /// The state machine of a slot, if it decides for itself.
    #[must_use]
    pub fn site(&self, slot: Slot) -> Option<&Site> {
        self.entries[usize::from(slot.0)].site.as_ref()
    }

    /// Whether this site decides inside the step.
    #[must_use]
    pub fn at_once(&self, slot: Slot) -> bool {
        self.site(slot).is_some_and(|site| site.request().at_once)
    }

    /// Takes a decision made at once. Without one, a site that never had one stores at the exponent that came in.
    pub fn decide(&mut self, slot: Slot, verdict: Result<Choice, NoDecision>, measured_at: i32, incoming: i32) {
        let index = usize::from(slot.0);
        if let Some(site) = &mut self.entries[index].site {
            self.exponents[index] = site.decide(verdict, measured_at).unwrap_or(incoming);
            self.decided.push(Decided { slot, verdict, measured_at, incoming });
        }
    }

    /// What was decided inside the attempt in progress.
    pub(crate) fn decided(&self) -> &[Decided] {
        &self.decided
    }

    /// A number that is the same where the same slots have the same names.
    pub(crate) fn fingerprint(&self) -> u32 {
        self.entries.iter().fold(0, |sum, entry| {
            let sum = crc32c::crc32c_append(sum, entry.name.as_bytes());
            crc32c::crc32c_append(sum, &[0xFF, entry.kind as u8])
        })
    }

    /// As [`Sites::decide`], by the exact rule, from the row of a first run of the operator.
    pub fn decide_from(&mut self, slot: Slot, row: &Stats, incoming: i32) {
        if let Some(verdict) = self.site(slot).map(|site| site.exact(row)) {
            self.decide(slot, verdict, row.exponent(), incoming);
        }
    }

    /// A global scale is the policy that writes the same number into all sites.
    fn spread(&mut self) {
        for (entry, exponent) in self.entries.iter().zip(&mut self.exponents) {
            if entry.kind == SlotKind::Site {
                match (&self.scaling, &entry.site) {
                    (Scaling::Loss(schedule), _) => *exponent = schedule.exponent(),
                    (_, Some(site)) => *exponent = site.alpha().unwrap_or(*exponent),
                    _ => {}
                }
            }
        }
    }

    /// Whether batches that overflow are repeated.
    #[must_use]
    pub fn repeats(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(gradient) if gradient.repeats())
    }

    /// Whether each call of a layer has a site of its own.
    #[must_use]
    pub fn each_call(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(gradient) if gradient.shared == SharedLayers::Each)
    }

    /// Takes the rows of an attempt at a step, by slot; `order` is that of their stores. Once for each attempt.
    ///
    /// # Panics
    /// If a slot of `order` has no row.
    pub fn finish(&mut self, rows: &[Stats], order: &[Slot], attempt: Attempt) -> Finished {
        self.decided.clear();
        let row = |slot: Slot| &rows[usize::from(slot.0)];
        let blame = step::blame(order.iter().map(|&slot| row(slot).counts()));
        let mut largest: Option<Scaled<f32>> = None;
        for &slot in order {
            let entry = &mut self.entries[usize::from(slot.0)];
            entry.row = Some(*row(slot));
            let counts = row(slot).counts();
            // ±∞ and NaN that arrive come from the forward pass, or from an overflow that another site has counted.
            entry.overflows = entry.overflows.saturating_add(counts.overflowed);
            if entry.kind == SlotKind::Site && counts.amax > largest.map_or(0.0, |largest| largest.data) {
                largest = Some(Scaled::new(counts.amax, counts.exponent));
            }
        }
        let finished = match blame {
            _ if !attempt.found_inf => Finished::Stepped,
            blame if !self.repeats() => Finished::Skipped(blame, Cause::NotFinite),
            blame => self.failed(rows, order, blame, attempt),
        };
        // What the blamed site saw beyond all that it knows, those behind it would have seen too.
        let excess = match (finished, blame) {
            (Finished::Repeat(_) | Finished::Skipped(_, Cause::Again), Some(blame)) => {
                let slot = order[blame.site];
                self.site(slot).map_or(0, |site| site.excess(row(slot)))
            }
            _ => 0,
        };
        let repeats = self.repeats();
        for (at, &slot) in order.iter().enumerate() {
            let Some(site) = &mut self.entries[usize::from(slot.0)].site else { continue };
            let behind = blame.is_some_and(|blame| at > blame.site);
            // One batch in one call decides from its own values.
            if behind && excess > 0 && (attempt.micro > 1 || site.config().calls == Calls::Several) {
                site.expect(excess);
            }
            let end = match finished {
                Finished::Repeat(_) => {
                    site.repeat(row(slot));
                    continue;
                }
                Finished::Stepped => step::end(true, false, blame, at),
                Finished::Skipped(_, cause) => step::end(false, repeats && cause != Cause::Again, blame, at),
            };
            if end == StepEnd::SkippedAfter {
                site.learn(excess);
            }
            site.finish(row(slot), end);
        }
        self.loss_scale_before = self.loss_scale();
        if let Scaling::Loss(schedule) = &mut self.scaling {
            schedule.update(&Feedback { found_inf: attempt.found_inf, amax: largest });
        }
        self.spread();
        if !matches!(finished, Finished::Repeat(_)) {
            self.settle();
        }
        finished
    }

    /// Notes which exponents a step that has ended leaves, beside those of the step before.
    fn settle(&mut self) {
        self.settled.resize(self.entries.len(), None);
        self.moved = self.loss_scale_before != self.loss_scale();
        for (entry, settled) in self.entries.iter().zip(&mut self.settled) {
            let alpha = entry.site.as_ref().and_then(Site::alpha);
            self.moved |= *settled != alpha;
            *settled = alpha;
        }
    }

    /// Whether the last step, skipped or not, changed an exponent of a site or of the loss scale.
    #[must_use]
    pub const fn moved(&self) -> bool {
        self.moved
    }

    /// The exponent of the loss scale in the last step; 0 under gradient scaling.
    #[must_use]
    pub const fn loss_scale_before(&self) -> i32 {
        self.loss_scale_before
    }

    /// What becomes of a batch for which something was not finite.
    fn failed(&self, rows: &[Stats], order: &[Slot], blame: Option<Blame>, attempt: Attempt) -> Finished {
        let slot = blame.map(|blame| order[blame.site]);
        let (Some(blame), Some(slot), Some(site)) = (blame, slot, slot.and_then(|slot| self.site(slot))) else {
            return Finished::Skipped(blame, Cause::NotFinite);
        };
        if blame.kind != Kind::Nan && site.is_outlier(&rows[usize::from(slot.0)]) {
            return Finished::Skipped(Some(blame), Cause::Outlier);
        }
        let calls = if attempt.micro > 1 { Calls::Several } else { site.config().calls };
        match (step::may_repeat(calls, attempt.failed), calls) {
            (true, _) if attempt.repeatable => Finished::Repeat(blame),
            (true, _) => Finished::Skipped(Some(blame), Cause::Again),
            (false, Calls::Several) => Finished::Skipped(Some(blame), Cause::Repeats),
            (false, Calls::One) => Finished::Skipped(Some(blame), Cause::NotFinite),
        }
    }

    /// The last row of a slot.
    #[must_use]
    pub fn row(&self, slot: Slot) -> Option<&Stats> {
        self.entries[usize::from(slot.0)].row.as_ref()
    }

    /// The name of a slot.
    #[must_use]
    pub fn name(&self, slot: Slot) -> &str {
        &self.entries[usize::from(slot.0)].name
    }

    /// The exponent of a loss scale; 0 under gradient scaling.
    #[must_use]
    pub fn loss_scale(&self) -> i32 {
        match &self.scaling {
            Scaling::Loss(schedule) => schedule.exponent(),
            Scaling::Gradient(_) => 0,
        }
    }
}
