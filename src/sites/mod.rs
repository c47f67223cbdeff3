//! Sites of a training: names, slots, exponents and state machines.
//!
//! A [`crate::Trainer`] has its own [`Sites`]. In another runtime, [`Sites`] is the part of gradient scaling that does
//! not compute. It provides the exponents at which a step stores, takes the statistics of the stores, and returns the
//! outcome of the step. A batch that overflowed and cannot be repeated ([`Attempt::repeatable`]) is skipped, and
//! guarded against for longer.
//!
//! ```
//! use gradscale::{Method, gradscale_core::stats::{Convention, Detail, Stats}, sites::{Attempt, Finished, Sites, SlotKind}};
//!
//! let mut sites = Sites::new("gs:interval=1".parse::<Method>()?.scaling)?;
//! let slot = sites.slot("layer/dgrad", SlotKind::Site)?;
//! let row = |exponent: i32, gradient: f32| {
//!     let mut row = Stats::new(Convention::FP16, exponent, Detail::Full);
//!     row.observe(&[gradient * 2f32.powi(exponent)]);
//!     row
//! };
//! // The first step decides inside the step, from its unscaled values.
//! sites.decide_from(slot, &row(0, 1e-6), 0);
//! // Pass the rows of every step, by slot, and the order of its stores.
//! let mut rows = vec![row(0, 0.0); sites.len()];
//! rows[usize::from(slot.0)] = row(sites.exponent(slot), 1e-6);
//! let attempt = Attempt { found_inf: false, failed: 0, repeatable: false, micro: 1 };
//! assert!(matches!(sites.finish(&rows, &[slot], attempt), Finished::Stepped));
//! assert_eq!(sites.exponent(slot), 6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod forward;
mod report;
mod saved;
mod warning;

pub(crate) use forward::Derivation;
pub use report::SiteReport;
pub use saved::SavedSite;
pub use warning::LossScaleWarning;

use crate::{
    BlockScaling, ForwardScaling, GradientScaling, Products, Scaling, SharedLayers, StoreFormats, TraceError,
    error::TraceErrorKind,
};
use gradscale_core::{
    backend::Slot,
    loss_scale::{Feedback, Fixed, LossScale},
    scaled::Scaled,
    site::{Calls, Site, SiteConfig, SiteOutcome, SitePass},
    solve::{Choice, ConfigError, NoDecision},
    stats::{Detail, Stats},
    step_outcome::{self, FirstNonFinite, NonFiniteKind},
    store_format::StoreFormat,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::HashMap, iter::repeat};

/// Purpose of a slot: reserved, parameter gradient, forward store or cast site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlotKind {
    /// Purpose of slots 0 and 1: unscaled data, and the scratch of decisions.
    Reserved,
    /// Purpose of a slot for a parameter's gradient: f32, at exponent 0.
    Parameter,
    /// Purpose of a slot for a store of the forward pass: half, at exponent 0 unless forward stores have exponents
    /// ([`crate::ForwardScaling`]).
    Forward,
    /// Purpose of a slot for a cast site of the backward pass.
    Site,
    /// Purpose of a slot whose exponent is computed from two others: the sum for products, the smaller for sums.
    Derived,
    /// Purpose of a slot for a weight that products read in a format of 8 bits ([`crate::StoreFormats::weight`]).
    Weight,
}

/// Reason why a training step was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Values were not finite, and no scale cures that; or the method skips every overflow.
    NotFinite,
    /// The batch exceeds the history by more than the method allows (`outliers=`).
    Outlier,
    /// The caller must run the batch again, because its inputs are not all on the device any more.
    Again,
    /// The batch was repeated three times, and overflowed each time.
    Repeats,
}

impl Cause {
    /// Returns the name of the cause in snake case, for bindings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFinite => "not_finite",
            Self::Outlier => "outlier",
            Self::Again => "again",
            Self::Repeats => "repeats",
        }
    }
}

/// Result of an attempt at a step: applied, repeated or skipped. The index of a [`FirstNonFinite`] is that in the order of the
/// stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    /// The step was applied: the parameters are updated.
    Stepped,
    /// The step overflowed and has changed nothing; the same batch is to be run again.
    Repeat(FirstNonFinite),
    /// The step was skipped and has changed nothing, for this cause.
    Skipped(Option<FirstNonFinite>, Cause),
}

/// Properties of an attempt at a step, besides the rows of its stores.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// True if some parameter gradient of the attempt is not finite.
    pub found_inf: bool,
    /// Number of attempts at this step that failed before.
    pub failed: u32,
    /// True if the caller can run the batch again.
    pub repeatable: bool,
    /// Number of micro-batches whose statistics rows were merged.
    pub micro: u32,
}

/// Decision of a cast site made inside the attempt in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub slot: Slot,
    pub verdict: Result<Choice, NoDecision>,
    pub measured_at: i32,
    pub incoming: i32,
}

#[derive(Clone, Debug)]
struct SlotEntry {
    name: String,
    kind: SlotKind,
    site: Option<Site>,
    /// Statistics row of the slot's last step with a store.
    row: Option<Stats>,
    /// Number of finite values at the slot that have overflowed so far.
    overflows: u64,
    /// True if values of a forward store overflow at every exponent that its site decides, as those of a mask do.
    keeps_overflow: bool,
    /// True if a checkpoint has a decided exponent of the slot, and no step has stored to it since the checkpoint was loaded.
    awaits_store: bool,
}

/// Sites of a training: all slots with their names, exponents and state machines, under one method. The first two slots
/// are reserved: [`Slot::ONE`] for values that are not scaled, [`Slot::PROBE`] for a decision's scratch.
#[derive(Clone, Debug)]
pub struct Sites {
    entries: Vec<SlotEntry>,
    index: HashMap<String, Slot>,
    exponents: Vec<i32>,
    scaling: Scaling,
    /// Setting of forward stores; off for runtimes that cannot give them exponents.
    forward: ForwardScaling,
    /// True if forward stores are sites.
    forward_active: bool,
    /// True if sites of forward stores also scale small values up.
    raises_forward: bool,
    /// Slots with derived exponents, in the order of their creation, so that each follows those it reads.
    derived: Vec<(Slot, Derivation)>,
    /// Decisions of cast sites since the last attempt ended.
    decided: Vec<Decided>,
    /// Exponents of the sites, by slot, after the last step. `moved` is true if that step changed one.
    settled: Vec<Option<i32>>,
    moved: bool,
    /// Exponent that the loss scale had in the last step.
    loss_scale_before: i32,
}

impl Sites {
    /// Creates the sites of a training without slots, except for the reserved ones.
    ///
    /// # Errors
    /// [`ConfigError`] for invalid settings of a rule.
    pub fn new(scaling: Scaling) -> Result<Self, ConfigError> {
        if let Scaling::Gradient(gradient) = &scaling {
            Site::new(gradient.site)?;
            let StoreFormats { gradient: of_gradients, activation, weight } = gradient.formats;
            for format in [of_gradients, activation, weight] {
                Site::new(gradient.site_in(format))?;
            }
        }
        let (entries, exponents, derived, decided, settled) = Default::default();
        let (index, moved, loss_scale_before) = (HashMap::new(), false, 0);
        let (forward, forward_active, raises_forward) = (ForwardScaling::Off, false, false);
        let mut sites = Self {
            entries,
            index,
            exponents,
            scaling,
            forward,
            forward_active,
            raises_forward,
            derived,
            decided,
            settled,
            moved,
            loss_scale_before,
        };
        sites.push("one", SlotKind::Reserved);
        sites.push("probe", SlotKind::Reserved);
        Ok(sites)
    }

    /// Returns the number of slots, the two reserved ones included. [`Sites::finish`] needs as many rows.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "two slots are always there")]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the scaling of the method, with the state of a loss scale.
    #[must_use]
    pub const fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// Creates sites with the same slots under another scaling, without statistics.
    pub(crate) fn with_scaling(&self, scaling: Scaling) -> Result<Self, ConfigError> {
        let mut sites = Self::new(scaling)?;
        for entry in self.entries.iter().skip(2) {
            // Cannot fail, because the same slots existed before.
            let _ = sites.push(&entry.name, entry.kind);
        }
        Ok(sites)
    }

    /// Replaces the loss scale of the method by a fixed one.
    pub(crate) fn fix_loss_scale(&mut self, fixed: Fixed) {
        self.scaling = Scaling::Loss(LossScale::Fixed(fixed));
        self.spread();
    }

    /// Returns the purpose of a slot: cast site, observed store or parameter gradient.
    pub(crate) fn kind(&self, slot: Slot) -> SlotKind {
        self.entries[usize::from(slot.0)].kind
    }

    /// Returns the slot with the name `name`, and creates it if there is none.
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
        let site = self.new_site(kind);
        self.entries.push(SlotEntry {
            name: name.to_owned(),
            kind,
            site,
            row: None,
            overflows: 0,
            keeps_overflow: false,
            awaits_store: false,
        });
        self.exponents.push(0);
        self.index.insert(name.to_owned(), slot);
        self.spread();
        Some(slot)
    }

    /// Creates the site of a slot of that purpose, if it has one.
    fn new_site(&self, kind: SlotKind) -> Option<Site> {
        let Scaling::Gradient(gradient) = &self.scaling else { return None };
        let config = gradient.site_in(self.format_of(kind));
        match kind {
            SlotKind::Site => Site::new(config).ok(),
            SlotKind::Forward | SlotKind::Weight if self.forward_active => {
                Site::forward(config, self.raises_forward).ok()
            }
            SlotKind::Forward | SlotKind::Weight | SlotKind::Reserved | SlotKind::Parameter | SlotKind::Derived => None,
        }
    }

    /// Declares that several launches of a step store into the same slot.
    pub fn share(&mut self, slot: Slot) {
        let entry = &mut self.entries[usize::from(slot.0)];
        if let Some(site) = &entry.site
            && site.config().calls == Calls::One
            && let config = (SiteConfig { calls: Calls::Several, ..*site.config() })
            && let Ok(mut shared) = match site.pass() {
                SitePass::Backward => Site::new(config),
                SitePass::Forward { raises } => Site::forward(config, raises),
            }
        {
            shared.restore(&site.state());
            entry.site = Some(shared);
        }
    }

    /// Returns the exponents of all slots in force, by slot.
    #[must_use]
    pub fn exponents(&self) -> &[i32] {
        &self.exponents
    }

    /// Returns the exponent of a slot in force.
    ///
    /// # Panics
    /// If there is no such slot; likewise for the methods below.
    #[must_use]
    pub fn exponent(&self, slot: Slot) -> i32 {
        self.exponents[usize::from(slot.0)]
    }

    /// Sets the exponent at which the scratch slot of a decision is measured.
    pub(crate) fn set_probe(&mut self, exponent: i32) {
        self.exponents[usize::from(Slot::PROBE.0)] = exponent;
    }

    /// Returns the maximum detail of statistics that a site among `slots` needs.
    #[must_use]
    pub fn detail(&self, slots: &[Slot]) -> Detail {
        let requests = slots.iter().filter_map(|slot| self.site(*slot)).map(|site| site.request().detail);
        requests.fold(Detail::Counts, Ord::max)
    }

    /// Returns the state machine of a slot's cast site, if it has one.
    #[must_use]
    pub fn site(&self, slot: Slot) -> Option<&Site> {
        self.entries[usize::from(slot.0)].site.as_ref()
    }

    /// Returns the format in which the method stores values of such slots.
    pub(crate) const fn format_of(&self, kind: SlotKind) -> StoreFormat {
        let formats = match &self.scaling {
            Scaling::Loss(_) => return StoreFormat::Fp16,
            Scaling::Gradient(GradientScaling { formats, .. }) => *formats,
            Scaling::Blocks(blocks) => blocks.formats(),
        };
        match kind {
            SlotKind::Site => formats.gradient,
            SlotKind::Forward => formats.activation,
            SlotKind::Weight => formats.weight,
            SlotKind::Reserved | SlotKind::Parameter | SlotKind::Derived => StoreFormat::Fp16,
        }
    }

    /// Returns true if the method lets devices multiply operands of 8 bits in units for these.
    pub(crate) fn multiplies_eight_bits(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(GradientScaling { products: Products::EightBits, .. }))
    }

    /// Returns the format of the values that are stored at a slot. That of an activation or a weight is FP16 until it has an
    /// exponent ([`Sites::forward_active`]).
    #[must_use]
    pub fn format(&self, slot: Slot) -> StoreFormat {
        self.format_of_entry(&self.entries[usize::from(slot.0)])
    }

    fn format_of_entry(&self, entry: &SlotEntry) -> StoreFormat {
        match (&self.scaling, &entry.site) {
            (Scaling::Blocks(_), _) => self.format_of(entry.kind),
            (Scaling::Gradient(_), Some(site)) => site.config().format,
            (Scaling::Loss(_) | Scaling::Gradient(_), _) => StoreFormat::Fp16,
        }
    }

    /// Returns the block scaling of the method, if it has one.
    pub(crate) const fn block_scaling(&self) -> Option<BlockScaling> {
        match self.scaling {
            Scaling::Blocks(blocks) => Some(blocks),
            Scaling::Loss(_) | Scaling::Gradient(_) => None,
        }
    }

    /// Returns the decision of the exact or the amax rule from a row of values that a site is to store.
    pub(crate) fn exact(&self, slot: Slot, row: &Stats) -> Result<Choice, NoDecision> {
        let site = self.site(slot).ok_or(NoDecision::Detail)?;
        site.exact(&row.counted_in(self.format(slot)))
    }

    /// Returns the rows of an attempt as rows of the formats of their slots, because devices and runtimes read all as rows of
    /// FP16.
    fn rows_in_formats<'a>(&self, rows: &'a [Stats]) -> Cow<'a, [Stats]> {
        match &self.scaling {
            Scaling::Loss(_) => return Cow::Borrowed(rows),
            Scaling::Gradient(gradient) if gradient.formats == StoreFormats::default() => return Cow::Borrowed(rows),
            Scaling::Gradient(_) | Scaling::Blocks(_) => {}
        }
        let formats = self.entries.iter().map(|entry| self.format_of_entry(entry)).chain(repeat(StoreFormat::Fp16));
        rows.iter().zip(formats).map(|(row, format)| row.counted_in(format)).collect()
    }

    /// Returns true if the slot's cast site decides inside the step.
    #[must_use]
    pub fn at_once(&self, slot: Slot) -> bool {
        self.site(slot).is_some_and(|site| site.request().at_once)
    }

    /// Applies a decision made inside the step. Without a decision, a site without an exponent stores at the incoming
    /// one.
    pub fn decide(&mut self, slot: Slot, verdict: Result<Choice, NoDecision>, measured_at: i32, incoming: i32) {
        let index = usize::from(slot.0);
        if let Some(site) = &mut self.entries[index].site {
            self.exponents[index] = site.decide(verdict, measured_at).unwrap_or(incoming);
            self.decided.push(Decided { slot, verdict, measured_at, incoming });
            self.update_derived();
        }
    }

    /// Returns the decisions of cast sites made inside the attempt in progress.
    pub(crate) fn decided(&self) -> &[Decided] {
        &self.decided
    }

    /// Returns a hash of all slots and their names, to compare ranks.
    pub(crate) fn fingerprint(&self) -> u32 {
        self.entries.iter().fold(0, |sum, entry| {
            let sum = crc32c::crc32c_append(sum, entry.name.as_bytes());
            crc32c::crc32c_append(sum, &[0xFF, entry.kind as u8])
        })
    }

    /// Decides like [`Sites::decide`], by the exact rule, from the row of a first run of the operator.
    pub fn decide_from(&mut self, slot: Slot, row: &Stats, incoming: i32) {
        if self.site(slot).is_some() {
            self.decide(slot, self.exact(slot, row), row.exponent(), incoming);
        }
    }

    /// Copies a loss scale to all sites: it is a policy that sets the same exponent everywhere.
    fn spread(&mut self) {
        for (entry, exponent) in self.entries.iter().zip(&mut self.exponents) {
            match (&self.scaling, &entry.site) {
                (Scaling::Loss(schedule), _) if entry.kind == SlotKind::Site => *exponent = schedule.exponent(),
                (Scaling::Gradient(_), Some(site)) => *exponent = site.alpha().unwrap_or(*exponent),
                (Scaling::Loss(_) | Scaling::Gradient(_) | Scaling::Blocks(_), _) => {}
            }
        }
        self.update_derived();
    }

    /// Returns true if the method repeats batches that overflow.
    #[must_use]
    pub fn repeats(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(gradient) if gradient.repeats())
    }

    /// Returns true if each call of a layer has its own site.
    #[must_use]
    pub fn each_call(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(gradient) if gradient.shared == SharedLayers::Each)
    }

    /// Ends an attempt at a step: takes its rows, by slot, and the `order` of their stores. Call it once for each
    /// attempt. The counters of a row are those of its slot's format ([`Sites::format`]), whatever convention it is read
    /// with.
    ///
    /// # Panics
    /// If a slot of `order` has no row.
    pub fn finish(&mut self, rows: &[Stats], order: &[Slot], attempt: Attempt) -> Finished {
        self.decided.clear();
        let rows = &*self.rows_in_formats(rows);
        let row = |slot: Slot| &rows[usize::from(slot.0)];
        let blame = step_outcome::find_first_non_finite(order.iter().map(|&slot| row(slot).counts()));
        let mut largest: Option<Scaled<f32>> = None;
        for &slot in order {
            let entry = &mut self.entries[usize::from(slot.0)];
            entry.row = Some(*row(slot));
            entry.awaits_store = false;
            let counts = row(slot).counts();
            // ±∞ and NaN on input come from the forward pass, or from an overflow that another site has counted.
            entry.overflows = entry.overflows.saturating_add(counts.overflowed);
            if entry.kind == SlotKind::Site && counts.amax > largest.map_or(0.0, |largest| largest.data) {
                largest = Some(Scaled::new(counts.amax, counts.exponent));
            }
        }
        // The gradients may be finite because a function like 1/√∞ hides an overflow.
        let hidden = if attempt.found_inf { None } else { self.blocking_overflow(rows, order, attempt.failed) };
        let blame = hidden.or(blame);
        let finished = match blame {
            _ if !attempt.found_inf && hidden.is_none() => Finished::Stepped,
            blame if !self.repeats() => Finished::Skipped(blame, Cause::NotFinite),
            blame => self.failed(rows, order, blame, attempt),
        };
        // The number of exponents by which the first overflowing site exceeds its history applies to the sites
        // downstream too.
        let excess = match (finished, blame) {
            (Finished::Repeat(_) | Finished::Skipped(_, Cause::Again), Some(blame)) => {
                let slot = order[blame.site];
                // A growth of activations says nothing about gradients.
                let is_gradient = self.kind(slot) == SlotKind::Site;
                self.site(slot).filter(|_| is_gradient).map_or(0, |site| site.bits_above_history(row(slot)))
            }
            _ => 0,
        };
        let repeats = self.repeats();
        for (at, &slot) in order.iter().enumerate() {
            let Some(site) = &mut self.entries[usize::from(slot.0)].site else { continue };
            if site.pass() != SitePass::Backward
                && let (Finished::Repeat(blame), true) = (finished, row(slot).counts().non_finite() == 0)
                && at < blame.site
            {
                // The activations before the overflow were right, and are computed again with the same bits.
                continue;
            }
            let behind = blame.is_some_and(|blame| at > blame.site);
            // A site with one call in one micro-batch decides from its own values.
            if behind && excess > 0 && (attempt.micro > 1 || site.config().calls == Calls::Several) {
                site.assume_upstream_growth(excess);
            }
            let end = match finished {
                Finished::Repeat(_) => {
                    site.repeat(row(slot));
                    continue;
                }
                Finished::Stepped => step_outcome::site_outcome(true, false, blame, at),
                Finished::Skipped(_, cause) => {
                    step_outcome::site_outcome(false, repeats && cause != Cause::Again, blame, at)
                }
            };
            if end == SiteOutcome::SkippedDownstream {
                site.limit_from_upstream(excess);
            }
            site.finish(row(slot), end);
        }
        if finished == Finished::Stepped {
            if attempt.failed > 0 {
                self.record_kept_overflows(rows, order);
            }
            if blame.is_some_and(|blame| self.is_unscaled_overflow(blame, order[blame.site])) {
                // An overflow outside of the guard. The next batch is the first with exponents.
                self.activate_forward();
            }
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

    /// Records the exponents after a finished step, and whether any of them changed.
    fn settle(&mut self) {
        self.settled.resize(self.entries.len(), None);
        self.moved = self.loss_scale_before != self.loss_scale();
        for (entry, settled) in self.entries.iter().zip(&mut self.settled) {
            let alpha = entry.site.as_ref().and_then(Site::alpha);
            self.moved |= *settled != alpha;
            *settled = alpha;
        }
    }

    /// Returns true if the last step, skipped or not, changed an exponent of a site or of the loss scale.
    #[must_use]
    pub const fn moved(&self) -> bool {
        self.moved
    }

    /// Returns the exponent of the loss scale in the last step; 0 under gradient scaling.
    #[must_use]
    pub const fn loss_scale_before(&self) -> i32 {
        self.loss_scale_before
    }

    /// Returns the treatment of a batch with values that are not finite. The first overflow of an activation gives forward
    /// stores exponents, if the method does so.
    fn failed(&mut self, rows: &[Stats], order: &[Slot], blame: Option<FirstNonFinite>, attempt: Attempt) -> Finished {
        let slot = blame.map(|blame| order[blame.site]);
        if let Some(blame) = blame.filter(|blame| self.is_unscaled_overflow(*blame, order[blame.site])) {
            self.activate_forward();
            return if attempt.repeatable {
                Finished::Repeat(blame)
            } else {
                Finished::Skipped(Some(blame), Cause::Again)
            };
        }
        let (Some(blame), Some(slot), Some(site)) = (blame, slot, slot.and_then(|slot| self.site(slot))) else {
            return Finished::Skipped(blame, Cause::NotFinite);
        };
        if blame.kind != NonFiniteKind::Nan && site.is_outlier(&rows[usize::from(slot.0)]) {
            return Finished::Skipped(Some(blame), Cause::Outlier);
        }
        let calls = if attempt.micro > 1 { Calls::Several } else { site.config().calls };
        match (step_outcome::may_repeat(calls, attempt.failed), calls) {
            (true, _) if attempt.repeatable => Finished::Repeat(blame),
            (true, _) => Finished::Skipped(Some(blame), Cause::Again),
            (false, Calls::Several) => Finished::Skipped(Some(blame), Cause::Repeats),
            (false, Calls::One) => Finished::Skipped(Some(blame), Cause::NotFinite),
        }
    }

    /// Returns the last statistics row of a slot, if it has stored.
    #[must_use]
    pub fn row(&self, slot: Slot) -> Option<&Stats> {
        self.entries[usize::from(slot.0)].row.as_ref()
    }

    /// Returns the name of the slot: layer and operator.
    #[must_use]
    pub fn name(&self, slot: Slot) -> &str {
        &self.entries[usize::from(slot.0)].name
    }

    /// Returns the exponent of the loss scale; 0 under gradient and block scaling.
    #[must_use]
    pub fn loss_scale(&self) -> i32 {
        match &self.scaling {
            Scaling::Loss(schedule) => schedule.exponent(),
            Scaling::Gradient(_) | Scaling::Blocks(_) => 0,
        }
    }
}
