//! State of all sites in checkpoints.

use super::{Sites, SlotEntry, SlotKind};
use crate::{ForwardScaling, Scaling};
use gradscale_core::{
    loss_scale::LossScale,
    site::{CEILING_HISTORY_LEN, Calls, Guard, SiteState},
};
use serde::{Deserialize, Serialize};

/// State of a slot in a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedSite {
    name: String,
    kind: SlotKind,
    overflows: u64,
    /// True if a forward store keeps overflowing in repeats; absent otherwise, as in files from before.
    #[serde(default, skip_serializing_if = "is_false")]
    keeps_overflow: bool,
    /// State of the slot's cast site, if it has its own exponent.
    state: Option<SavedState>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SavedState {
    alpha: Option<i32>,
    since: u32,
    at_once: bool,
    ceilings: Vec<i64>,
    several: bool,
    /// Limit, steps left and duration of the guard; `None` before the first lost batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<(i64, u32, u32)>,
    /// Lowest ceiling that the site has seen in attempts at the coming step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tried: Option<i64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Sites {
    /// Returns all slots after the reserved ones, in order. The state of a loss scale is in [`Sites::scaling`].
    #[must_use]
    pub fn save(&self) -> Vec<SavedSite> {
        let saved = |entry: &SlotEntry| SavedSite {
            name: entry.name.clone(),
            kind: entry.kind,
            overflows: entry.overflows,
            keeps_overflow: entry.keeps_overflow,
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
                        let Guard { limit, remaining_steps: left, duration_steps: lasts } = state.guard;
                        (limit, left, lasts)
                    }),
                }
            }),
        };
        // Derived exponents are computed again.
        let entries = self.entries.iter().skip(2).filter(|entry| entry.kind != SlotKind::Derived);
        entries.map(saved).collect()
    }

    /// Restores saved slots. Slots of this network keep their numbers, so the saved ones must start with the same
    /// slots.
    ///
    /// # Errors
    /// A sentence about slots that differ; nothing has changed then.
    pub fn restore(&mut self, schedule: Option<LossScale>, saved: &[SavedSite]) -> Result<(), String> {
        let own = self.entries.iter().skip(2).filter(|entry| entry.kind == SlotKind::Parameter).count();
        let parameters = saved.iter().take_while(|site| site.kind == SlotKind::Parameter).count();
        let same = self.entries.iter().skip(2).zip(saved).take(own).all(|(entry, site)| entry.name == site.name);
        if parameters != own || !same {
            return Err("made with another network".to_owned());
        }
        // Everything is checked before anything changes: the number of slots may exceed the table.
        let known = |site: &SavedSite| self.index.get(&site.name).map(|slot| self.entries[usize::from(slot.0)].kind);
        if let Some(other) = saved.iter().find(|site| known(site).is_some_and(|kind| kind != site.kind)) {
            return Err(format!("{} is another kind of site in the checkpoint", other.name));
        }
        if self.entries.len().saturating_add(saved.len()) >= usize::from(u16::MAX) {
            return Err("too many sites".to_owned());
        }
        if saved.iter().any(|site| site.kind == SlotKind::Forward && site.state.is_some())
            && self.forward != ForwardScaling::Off
        {
            self.activate_forward();
        }
        for site in saved {
            let slot = self.slot(&site.name, site.kind).map_err(|error| error.to_string())?;
            if site.state.as_ref().is_some_and(|state| state.several) {
                self.share(slot);
            }
            let entry = &mut self.entries[usize::from(slot.0)];
            (entry.overflows, entry.keeps_overflow) = (site.overflows, site.keeps_overflow);
            entry.row = None;
            entry.awaits_store = site.state.as_ref().is_some_and(|state| state.alpha.is_some());
            if let (Some(own), Some(state)) = (&mut entry.site, &site.state) {
                let ceilings = state.ceilings.iter().copied().take(CEILING_HISTORY_LEN).collect();
                let (limit, left, lasts) = state.guard.unwrap_or_default();
                let guard = Guard { limit, remaining_steps: left, duration_steps: lasts };
                let SavedState { alpha, since, at_once, tried, .. } = *state;
                own.restore(&SiteState { alpha, since, at_once, ceilings, guard, tried });
            }
        }
        if let Some(schedule) = schedule {
            self.scaling = Scaling::Loss(schedule);
        }
        self.spread();
        self.loss_scale_before = self.loss_scale();
        self.settle();
        Ok(())
    }

    /// Returns the names of sites whose exponents [`Sites::restore`] has found and to which no step has stored since. After a whole
    /// step, the network has no such sites any more: for example, they were inside of a layer that is one operator now.
    /// Calls of a site that is in use are left out, because a shorter sequence has fewer of them.
    pub fn unused_restored_sites(&self) -> impl Iterator<Item = &str> {
        let is_call_in_use = |name: &str| {
            let first = name.rsplit_once('@').and_then(|(first, _)| self.index.get(first));
            first.is_some_and(|slot| !self.entries[usize::from(slot.0)].awaits_store)
        };
        let unused = self.entries.iter().filter(|entry| entry.awaits_store).map(|entry| entry.name.as_str());
        unused.filter(move |name| !is_call_in_use(name))
    }
}
