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

mod attempt;
mod formats;
mod forward;
mod report;
mod saved;
mod warning;

pub use attempt::{Attempt, Cause, Finished};
pub(crate) use forward::Derivation;
pub use report::SiteReport;
pub use saved::SavedSite;
pub use warning::LossScaleWarning;

use crate::{ForwardScaling, GradientScaling, Scaling, SharedLayers, StoreFormats, TraceError, error::TraceErrorKind};
use gradscale_core::{
    backend::Slot,
    loss_scale::{Fixed, LossScale},
    site::{Calls, Site, SiteConfig, SitePass, When},
    solve::{Choice, ConfigError, NoDecision},
    stats::{Detail, Stats},
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

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

    /// Returns the decision of the exact or the amax rule from a row of values that a site is to store.
    pub(crate) fn exact(&self, slot: Slot, row: &Stats) -> Result<Choice, NoDecision> {
        let site = self.site(slot).ok_or(NoDecision::Detail)?;
        site.exact(&row.counted_in(self.format(slot)))
    }

    /// Returns true if the slot's cast site decides inside the step.
    #[must_use]
    pub fn at_once(&self, slot: Slot) -> bool {
        self.site(slot).is_some_and(|site| site.request().at_once)
    }

    /// Returns true if the method's sites decide inside every step: by current scaling, or with an interval of 1.
    pub(crate) fn decides_inside_every_step(&self) -> bool {
        let Scaling::Gradient(GradientScaling { site, .. }) = &self.scaling else { return false };
        let is_current = site.amax.is_some_and(|amax| amax.history() == 0);
        is_current || site.when == When::AtOnce && site.interval == 1
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
