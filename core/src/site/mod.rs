//! The state machine of one cast site.
//!
//! The state is the accumulated exponent α. (Keeping the local factor β and deciding it against last step's
//! incoming α adds up errors along the chain.) Once in an interval of optimizer steps it is decided anew: from the
//! row of the step just done, for the next ("between steps"), or from a first run of the operator inside the step
//! ("at once").

mod config;
mod history;

pub use config::{Calls, SiteConfig, When};
pub use history::{Decision, HISTORY, Trigger};

use crate::{
    solve::{Choice, NoDecision},
    stats::{Detail, Stats},
};
use heapless::Deque;

/// Steps that an amax history looks back.
pub const AMAX_STEPS: usize = 16;

/// How a step ended, for one site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// The optimizer stepped.
    Stepped,
    /// The step was skipped, and this site is the first that overflowed, or came before it: its row is finite. If no
    /// site is to blame, all are of this kind.
    SkippedHere,
    /// The step was skipped, and this site came after the first that overflowed: its row says nothing.
    SkippedAfter,
}

/// What a site wants of the coming step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wish {
    /// Decide inside the step, before the store ([`Site::decide`]).
    pub at_once: bool,
    /// What the row should hold for [`Site::finish`].
    pub detail: Detail,
}

/// All that a site remembers, for checkpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteState {
    /// The exponent in force; `None` before the first decision.
    pub alpha: Option<i32>,
    /// Optimizer steps taken since the step that decided, that one included.
    pub since: u32,
    /// Whether the next step decides at once.
    pub at_once: bool,
    /// The least absolute exponent at which each of the last steps would have overflowed, oldest first.
    pub ceilings: heapless::Vec<i64, AMAX_STEPS>,
}

/// One cast site: its exponent, when it is decided, and why it is what it is.
///
/// ```
/// use gradscale_core::{site::{End, Site, SiteConfig, Trigger}, stats::{Convention, Stats}};
///
/// let mut site = Site::new(SiteConfig::exact())?;
/// let gradient = [1e-9f32, 3e-8, -2e-10, 0.0];
///
/// // The first step decides at once: observe the f32 values unscaled, decide, store scaled.
/// let mut probe = Stats::new(Convention::FP16, 0, site.wish().detail);
/// probe.observe(&gradient);
/// let alpha = site.decide(site.exact(&probe), probe.exponent()).expect("not all zero");
///
/// // Every step hands in its row.
/// let mut row = Stats::new(Convention::FP16, alpha, site.wish().detail);
/// row.observe(&gradient.map(|x| x * 2f32.powi(alpha)));
/// site.finish(&row, End::Stepped);
/// assert_eq!(site.alpha(), Some(19));
/// assert_eq!(site.history().next().map(|decision| decision.trigger), Some(Trigger::First));
/// # Ok::<(), gradscale_core::solve::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Site {
    config: SiteConfig,
    alpha: Option<i32>,
    since: u32,
    at_once: bool,
    ceilings: Deque<i64, AMAX_STEPS>,
    history: Deque<Decision, HISTORY>,
}

impl Site {
    /// A site without state.
    ///
    /// # Errors
    /// [`crate::solve::ConfigError::Interval`] for an interval of 0.
    pub fn new(config: SiteConfig) -> Result<Self, crate::solve::ConfigError> {
        if config.interval == 0 {
            return Err(crate::solve::ConfigError::Interval);
        }
        Ok(Self { config, alpha: None, since: 0, at_once: true, ceilings: Deque::new(), history: Deque::new() })
    }

    /// The configuration.
    #[must_use]
    pub const fn config(&self) -> &SiteConfig {
        &self.config
    }

    /// The exponent in force; `None` before the first decision.
    #[must_use]
    pub const fn alpha(&self) -> Option<i32> {
        self.alpha
    }

    /// The last decisions, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &Decision> {
        self.history.iter()
    }

    /// Whether the row of the coming step is to decide.
    fn due(&self) -> bool {
        self.since >= self.config.interval
    }

    /// What the coming step should do.
    #[must_use]
    pub fn wish(&self) -> Wish {
        let at_once = self.at_once || self.config.when == When::AtOnce && self.due();
        let update = at_once || self.due();
        Wish { at_once, detail: if update { self.config.detail() } else { Detail::Counts } }
    }

    /// Takes a decision made at once, relative to the exponent `measured_at` of the row it was made from, and
    /// returns the exponent to store with. Without a decision the state stays, and `None` is returned as long as
    /// there is none: store at the incoming exponent then.
    pub fn decide(&mut self, verdict: Result<Choice, NoDecision>, measured_at: i32) -> Option<i32> {
        let trigger = match self.alpha {
            None => Trigger::First,
            Some(_) if self.at_once => Trigger::AfterSkip,
            Some(_) => Trigger::Interval,
        };
        if let Ok(choice) = verdict {
            self.set(choice, measured_at, trigger);
            self.at_once = false;
            self.since = 0;
        }
        self.alpha
    }

    /// Takes the row of a step, all micro-batches and calls merged, and how the step ended. Call it once for each
    /// optimizer step; intervals count these. A row of an update step that gives no decision (all zeros) leaves the
    /// update due.
    pub fn finish(&mut self, row: &Stats, end: End) {
        match end {
            End::Stepped => {
                self.remember(row);
                let due = self.due();
                self.since = self.since.saturating_add(1);
                if row.counts().infinite != 0 {
                    // A mask hid ∞ from the parameters: perhaps a finite value times too large a factor. Such a row
                    // decides nothing, and its site would never come down.
                    self.at_once = true;
                } else if row.counts().overflowed != 0 {
                    // A mask hid it from the parameters.
                    self.decide_from(row, Trigger::Overflow);
                } else if self.at_once && self.config.when == When::Between && self.config.calls == Calls::Several {
                    // Its first call had nothing to decide from; all calls together may have.
                    let trigger = if self.alpha.is_none() { Trigger::First } else { Trigger::AfterSkip };
                    self.decide_from(row, trigger);
                    self.at_once = self.alpha.is_none();
                } else if due && self.config.when == When::Between && !self.at_once {
                    self.decide_from(row, Trigger::Interval);
                }
            }
            End::SkippedHere => {
                self.remember(row);
                self.decide_from(row, Trigger::Overflow);
                // A row that is not finite decided nothing.
                self.at_once |= self.config.calls == Calls::One || row.counts().non_finite() != 0;
            }
            End::SkippedAfter => {
                let counts = row.counts();
                let finite = counts.non_finite() == 0 && counts.overflowed == 0;
                self.at_once |= self.config.calls == Calls::One || !finite;
            }
        }
    }

    /// Decides between steps.
    fn decide_from(&mut self, row: &Stats, trigger: Trigger) {
        if self.config.when == When::AtOnce {
            // Its model needs more than this row.
            self.at_once |= trigger == Trigger::Overflow;
            return;
        }
        let verdict = match self.exact(row) {
            // A light row: lower from amax, and decide properly from the next.
            Err(NoDecision::Detail) => {
                self.since = self.config.interval;
                if let Ok(choice) = self.config.exact.lower(row) {
                    self.set(choice, row.exponent(), trigger);
                }
                return;
            }
            verdict => verdict,
        };
        if let Ok(choice) = verdict {
            self.set(choice, row.exponent(), trigger);
            self.since = 1;
        }
    }

    /// The exact rule's decision from `row`. Where an amax history is kept, the last 16 steps limit it too.
    ///
    /// # Errors
    /// [`NoDecision`].
    pub fn exact(&self, row: &Stats) -> Result<Choice, NoDecision> {
        if row.counts().non_finite() != 0 {
            return Err(NoDecision::NotFinite);
        }
        let own = row.room_above().ok_or(NoDecision::Empty)?;
        let past = self.ceilings.iter().map(|&ceiling| ceiling.saturating_sub(i64::from(row.exponent()))).min();
        let k_of = past.map_or(own, |past| {
            let past = past.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
            #[expect(clippy::cast_possible_truncation, reason = "clamped")]
            let past = past as i32;
            own.min(past)
        });
        self.config.exact.decide_below(row, k_of)
    }

    fn remember(&mut self, row: &Stats) {
        if self.config.amax_history
            && row.counts().non_finite() == 0
            && let Some(k_of) = row.room_above()
        {
            push(&mut self.ceilings, i64::from(row.exponent()) + i64::from(k_of));
        }
    }

    fn set(&mut self, choice: Choice, measured_at: i32, trigger: Trigger) {
        let alpha = measured_at.saturating_add(choice.k);
        push(&mut self.history, Decision { before: self.alpha, alpha, choice, trigger });
        self.alpha = Some(alpha);
    }

    /// All that a checkpoint must keep; the history of decisions is for people and not part of it.
    #[must_use]
    pub fn state(&self) -> SiteState {
        SiteState {
            alpha: self.alpha,
            since: self.since,
            at_once: self.at_once,
            ceilings: self.ceilings.iter().copied().collect(),
        }
    }

    /// Continues from a checkpoint, as if there had been no break: a resume by itself decides nothing at once.
    pub fn restore(&mut self, state: &SiteState) {
        self.alpha = state.alpha;
        self.since = state.since;
        self.at_once = state.at_once || state.alpha.is_none();
        self.ceilings = Deque::new();
        for &ceiling in &state.ceilings {
            push(&mut self.ceilings, ceiling);
        }
    }
}

/// Appends to a ring, whose oldest entry makes room. (`HistoryBuf` would link a bounds check, and with it a panic.)
fn push<T, const N: usize>(ring: &mut Deque<T, N>, item: T) {
    if ring.is_full() {
        ring.pop_front();
    }
    ring.push_back(item).ok();
}
