//! Names, slots, exponents and state machines of all sites that train together.

use crate::{Scaling, SharedLayers, TraceError, error::TraceErrorKind};
use gradscale_core::{
    backend::Slot,
    loss_scale::{Feedback, LossScale},
    scaled::Scaled,
    site::{Calls, Guard, RING, Site, SiteConfig, SiteState, StepEnd},
    solve::{Choice, ConfigError, LimitedBy, NoDecision},
    stats::{Detail, Stats},
    step::{self, Blame, Kind},
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SlotKind {
    /// 0 and 1: unscaled data, and the scratch of decisions.
    Reserved,
    /// Gradient of a parameter: f32, at exponent 0.
    Parameter,
    /// A store of the forward pass: half, at exponent 0.
    Forward,
    /// A cast site of the backward pass.
    Site,
}

/// A slot in a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SavedSite {
    name: String,
    kind: SlotKind,
    overflows: u64,
    /// Of a site that decides for itself.
    state: Option<SavedState>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedState {
    alpha: Option<i32>,
    since: u32,
    at_once: bool,
    ceilings: Vec<i64>,
    several: bool,
    /// Limit, steps left, steps that it lasts; none where nothing was lost yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<(i64, u32, u32)>,
    /// The least ceiling seen in attempts at the coming step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tried: Option<i64>,
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

/// How an attempt at a step ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finished {
    Stepped,
    Repeat(Blame),
    Skipped(Option<Blame>, Cause),
}

/// What is known of an attempt beside its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub found_inf: bool,
    /// Attempts at this step that failed before.
    pub failed: u32,
    /// Whether the batch can be run again.
    pub repeatable: bool,
    /// Micro-batches whose rows have added up.
    pub micro: u32,
}

#[derive(Debug)]
struct Entry {
    name: String,
    kind: SlotKind,
    site: Option<Site>,
    /// The last row in which something was stored.
    row: Option<Stats>,
    /// Non-finite and overflowed values so far.
    overflows: u64,
}

/// What is known of one cast site.
#[derive(Clone, Debug)]
pub struct SiteReport<'a> {
    /// Layer and operator.
    pub name: &'a str,
    /// The exponent in force for the next step: the scale is 2^alpha.
    pub alpha: i32,
    /// The last row: counts, and a histogram after an update.
    pub row: &'a Stats,
    /// Share of the non-zero values that were flushed in the last step.
    pub gamma_measured: f64,
    /// Share that the last decision expected; none under a loss scale, NaN where a rule has no model.
    pub gamma_predicted: Option<f64>,
    /// What the last decision was bound by.
    pub bound: Option<LimitedBy>,
    /// Values that overflowed or arrived as ±∞ or NaN, over all steps.
    pub overflows: u64,
    /// Share of the non-zero values stored as subnormals in the last step.
    pub subnormal_share: f64,
    /// Largest true magnitude in the last step, as a power of two: log2 amax − alpha. None if all was zero.
    pub log2_amax: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct Sites {
    entries: Vec<Entry>,
    index: HashMap<String, Slot>,
    exponents: Vec<i32>,
    scaling: Scaling,
}

impl Sites {
    pub fn new(scaling: Scaling) -> Result<Self, ConfigError> {
        if let Scaling::Gradient(gradient) = &scaling {
            Site::new(gradient.site)?;
        }
        let mut sites = Self { entries: Vec::new(), index: HashMap::new(), exponents: Vec::new(), scaling };
        sites.push("one", SlotKind::Reserved);
        sites.push("probe", SlotKind::Reserved);
        Ok(sites)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub const fn scaling(&self) -> &Scaling {
        &self.scaling
    }

    /// The slot of that name, new if there was none.
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

    /// Exponents in force.
    pub fn exponents(&self) -> &[i32] {
        &self.exponents
    }

    pub fn exponent(&self, slot: Slot) -> i32 {
        self.exponents[usize::from(slot.0)]
    }

    pub fn set_probe(&mut self, exponent: i32) {
        self.exponents[usize::from(Slot::PROBE.0)] = exponent;
    }

    /// The most that a site among `slots` wants to be observed.
    pub fn detail(&self, slots: &[Slot]) -> Detail {
        let requests = slots.iter().filter_map(|slot| self.site(*slot)).map(|site| site.request().detail);
        requests.fold(Detail::Counts, Ord::max)
    }

    pub fn site(&self, slot: Slot) -> Option<&Site> {
        self.entries[usize::from(slot.0)].site.as_ref()
    }

    /// Whether this site decides inside the step.
    pub fn at_once(&self, slot: Slot) -> bool {
        self.site(slot).is_some_and(|site| site.request().at_once)
    }

    /// Takes a decision made at once. Without one, a site that never had one stores at the exponent that came in.
    pub fn decide(&mut self, slot: Slot, verdict: Result<Choice, NoDecision>, measured_at: i32, incoming: i32) {
        let index = usize::from(slot.0);
        if let Some(site) = &mut self.entries[index].site {
            self.exponents[index] = site.decide(verdict, measured_at).unwrap_or(incoming);
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
    pub fn repeats(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(gradient) if gradient.repeats())
    }

    /// Whether each call of a layer has a site of its own.
    pub fn each_call(&self) -> bool {
        matches!(&self.scaling, Scaling::Gradient(gradient) if gradient.shared == SharedLayers::Each)
    }

    /// Takes the rows of an attempt at a step, by slot; `order` is that of their stores.
    pub fn finish(&mut self, rows: &[Stats], order: &[Slot], attempt: Attempt) -> Finished {
        let row = |slot: Slot| &rows[usize::from(slot.0)];
        let blame = step::blame(order.iter().map(|&slot| row(slot).counts()));
        let mut largest: Option<Scaled<f32>> = None;
        for &slot in order {
            let entry = &mut self.entries[usize::from(slot.0)];
            entry.row = Some(*row(slot));
            let counts = row(slot).counts();
            entry.overflows = entry.overflows.saturating_add(counts.overflowed).saturating_add(counts.non_finite());
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
        if let Scaling::Loss(schedule) = &mut self.scaling {
            schedule.update(&Feedback { found_inf: attempt.found_inf, amax: largest });
        }
        self.spread();
        finished
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
    pub fn row(&self, slot: Slot) -> Option<&Stats> {
        self.entries[usize::from(slot.0)].row.as_ref()
    }

    /// All slots beyond the reserved ones, in order.
    pub fn save(&self) -> Vec<SavedSite> {
        let saved = |entry: &Entry| SavedSite {
            name: entry.name.clone(),
            kind: entry.kind,
            overflows: entry.overflows,
            state: entry.site.as_ref().map(|site| {
                let state = site.state();
                SavedState {
                    alpha: state.alpha,
                    since: state.since,
                    at_once: state.at_once,
                    ceilings: state.ceilings.to_vec(),
                    several: site.config().calls == Calls::Several,
                    tried: state.tried,
                    guard: (state.guard != Guard::default()).then_some({
                        let Guard { limit, left, lasts } = state.guard;
                        (limit, left, lasts)
                    }),
                }
            }),
        };
        self.entries.iter().skip(2).map(saved).collect()
    }

    /// Takes the place of what is here: slots that this network has keep their numbers, so those saved must begin
    /// with the same ones.
    pub fn restore(&mut self, schedule: Option<LossScale>, saved: &[SavedSite]) -> Result<(), String> {
        let own = self.entries.iter().skip(2).filter(|entry| entry.kind == SlotKind::Parameter).count();
        let parameters = saved.iter().take_while(|site| site.kind == SlotKind::Parameter).count();
        let same = self.entries.iter().skip(2).zip(saved).take(own).all(|(entry, site)| entry.name == site.name);
        if parameters != own || !same {
            return Err("made by another network".to_owned());
        }
        // All is checked before anything changes: a slot more would not fit the table.
        let known = |site: &SavedSite| self.index.get(&site.name).map(|slot| self.entries[usize::from(slot.0)].kind);
        if let Some(other) = saved.iter().find(|site| known(site).is_some_and(|kind| kind != site.kind)) {
            return Err(format!("{} is something else there", other.name));
        }
        if self.entries.len().saturating_add(saved.len()) >= usize::from(u16::MAX) {
            return Err("too many sites".to_owned());
        }
        for site in saved {
            let slot = self.slot(&site.name, site.kind).map_err(|error| error.to_string())?;
            if site.state.as_ref().is_some_and(|state| state.several) {
                self.share(slot);
            }
            let entry = &mut self.entries[usize::from(slot.0)];
            entry.overflows = site.overflows;
            entry.row = None;
            if let (Some(own), Some(state)) = (&mut entry.site, &site.state) {
                let ceilings = state.ceilings.iter().copied().take(RING).collect();
                let (limit, left, lasts) = state.guard.unwrap_or_default();
                let guard = Guard { limit, left, lasts };
                let SavedState { alpha, since, at_once, tried, .. } = *state;
                own.restore(&SiteState { alpha, since, at_once, ceilings, guard, tried });
            }
        }
        if let Some(schedule) = schedule {
            self.scaling = Scaling::Loss(schedule);
        }
        self.spread();
        Ok(())
    }

    pub fn name(&self, slot: Slot) -> &str {
        &self.entries[usize::from(slot.0)].name
    }

    pub fn reports(&self) -> impl Iterator<Item = SiteReport<'_>> {
        self.entries.iter().zip(&self.exponents).filter(|(entry, _)| entry.kind == SlotKind::Site).filter_map(
            |(entry, &alpha)| {
                let row = entry.row.as_ref()?;
                let counts = row.counts();
                let share = |part: u64| if counts.nonzero() == 0 { 0.0 } else { part as f64 / counts.nonzero() as f64 };
                let last = entry.site.as_ref().and_then(|site| site.history().last());
                Some(SiteReport {
                    name: &entry.name,
                    alpha,
                    row,
                    gamma_measured: share(counts.flushed),
                    gamma_predicted: last.map(|decision| decision.choice.gamma),
                    bound: last.map(|decision| decision.choice.held),
                    overflows: entry.overflows,
                    subnormal_share: share(counts.subnormal),
                    log2_amax: (counts.amax > 0.0).then(|| f64::from(counts.amax).log2() - f64::from(counts.exponent)),
                })
            },
        )
    }

    /// The exponent of a loss scale; 0 under gradient scaling.
    pub fn loss_scale(&self) -> i32 {
        match &self.scaling {
            Scaling::Loss(schedule) => schedule.exponent(),
            Scaling::Gradient(_) => 0,
        }
    }
}
