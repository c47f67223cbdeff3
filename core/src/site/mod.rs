//! The state machine of one cast site.
//!
//! The state is the accumulated exponent α. (Keeping the local factor β and deciding it against last step's
//! incoming α adds up errors along the chain.) Once in an interval of optimizer steps it is decided anew: from the
//! row of the step just done, for the next ("between steps"), or from a first run of the operator inside the step
//! ("at once").
//!
//! A batch that overflows is not lost: it is repeated, and every site decides at once from its own values. The ceilings
//! of the last rows keep repeats rare.

mod amax;
mod config;
mod decision;
mod guard;
mod history;
mod lost;
mod ring;
mod state;
mod words;

pub use config::{Calls, Memory, SiteConfig, When};
pub use guard::{GUARD_LIMIT, GUARD_STEPS, Guard};
pub use history::{Decision, HISTORY, Trigger};
pub use ring::{MAX_CEILING_SPREAD, RING};
pub use state::SiteState;
pub use words::{WORDS, WordsError};

use crate::{
    solve::{Choice, NoDecision},
    stats::{Detail, Stats},
};
use decision::{ceiling, finite_part};
use heapless::Deque;
use ring::CeilingHistory;

/// How a step ended, for one site.
///
/// A runtime whose one gradient overflowed has to leave the step out; all rows of that step come to be known, so the site
/// that overflowed first, and those before it in the backward pass, are `SkippedHere`, the others `SkippedAfter`:
///
/// ```
/// use gradscale_core::{site::{StepEnd, Site, SiteConfig}, stats::{Convention, Stats}};
///
/// let row = |site: &Site, u: f32| {
///     let mut row = Stats::new(Convention::FP16, site.alpha().unwrap_or(0), site.request().detail);
///     row.observe(&[u * 2f32.powi(row.exponent())]);
///     row
/// };
/// let [mut logits, mut layer] = [Site::new(SiteConfig::exact())?, Site::new(SiteConfig::exact())?];
/// for site in [&mut logits, &mut layer] {
///     let mut probe = Stats::new(Convention::FP16, 0, site.request().detail);
///     probe.observe(&[1e-6]);
///     site.decide(site.exact(&probe), 0);
/// }
/// // A batch with gradients 2^40 times as large: the first site overflows, and what comes behind it is ±∞.
/// let large = row(&logits, 1e6);
/// assert_eq!(large.counts().overflowed, 1);
/// let behind = row(&layer, f32::INFINITY);
/// logits.finish(&large, StepEnd::SkippedHere);
/// layer.finish(&behind, StepEnd::SkippedAfter);
/// // Both decide at once in the next step: from its own values, before they are stored.
/// assert!(logits.request().at_once && layer.request().at_once);
/// # Ok::<(), gradscale_core::solve::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepEnd {
    /// The optimizer stepped.
    Stepped,
    /// The step was skipped, and this site is the first that overflowed, or came before it: its row is finite. If no
    /// site is to blame, all are of this kind.
    SkippedHere,
    /// The step was skipped, and this site came after the first that overflowed: its row says nothing.
    SkippedAfter,
    /// The step was left out for a reason that no exponent mends: all is as it was before.
    Void,
}

/// Request of a site for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Decide inside the step, before the store ([`Site::decide`]).
    pub at_once: bool,
    /// Detail of the row that [`Site::finish`] needs.
    pub detail: Detail,
}

/// State before the attempts of a step, to restore.
#[derive(Clone, Copy, Debug)]
struct Before {
    alpha: Option<i32>,
    since: u32,
    at_once: bool,
}

/// One cast site: its exponent, when it is decided, and why it is what it is.
///
/// ```
/// use gradscale_core::{site::{StepEnd, Site, SiteConfig, Trigger}, stats::{Convention, Stats}};
///
/// let mut site = Site::new(SiteConfig::exact())?;
/// let gradient = [1e-9f32, 3e-8, -2e-10, 0.0];
///
/// // The first step decides at once: observe the f32 values unscaled, decide, store scaled.
/// let mut probe = Stats::new(Convention::FP16, 0, site.request().detail);
/// probe.observe(&gradient);
/// let alpha = site.decide(site.exact(&probe), probe.exponent()).expect("not all zero");
///
/// // Every step hands in its row.
/// let mut row = Stats::new(Convention::FP16, alpha, site.request().detail);
/// row.observe(&gradient.map(|x| x * 2f32.powi(alpha)));
/// site.finish(&row, StepEnd::Stepped);
/// assert_eq!(site.alpha(), Some(19));
/// assert_eq!(site.history().next().map(|decision| decision.trigger), Some(Trigger::First));
/// # Ok::<(), gradscale_core::solve::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Site {
    config: SiteConfig,
    alpha: Option<i32>,
    steps_since_update: u32,
    at_once: bool,
    ring: CeilingHistory,
    guard: Guard,
    history: Deque<Decision, HISTORY>,
    /// Of a step in which something was decided.
    before: Option<Before>,
    /// Number of attempts of this step that overflowed.
    failed: u8,
    /// Lowest ceiling that the failed attempts of this step have shown or let expect.
    required_ceiling: Option<i64>,
}

impl Site {
    /// A site without state.
    ///
    /// # Errors
    /// [`crate::solve::ConfigError`] for an interval of 0, or outliers that are none.
    pub fn new(config: SiteConfig) -> Result<Self, crate::solve::ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            alpha: None,
            steps_since_update: 0,
            at_once: !config.is_delayed(),
            ring: CeilingHistory::default(),
            guard: Guard::default(),
            history: Deque::new(),
            before: None,
            failed: 0,
            required_ceiling: None,
        })
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

    /// Whether the row of the next step decides.
    fn is_update_due(&self) -> bool {
        self.steps_since_update >= self.config.interval
    }

    /// Returns what the next step should do.
    #[must_use]
    pub fn request(&self) -> Request {
        let at_once = self.at_once || self.config.when == When::AtOnce && self.is_update_due();
        let update = at_once || self.is_update_due();
        Request { at_once, detail: if update { self.config.detail() } else { Detail::Counts } }
    }

    /// Takes a decision made at once, relative to the exponent `measured_at` of the row it was made from, and
    /// returns the exponent to store with. Without a decision the state stays, and `None` is returned as long as
    /// there is none: store at the incoming exponent then.
    pub fn decide(&mut self, verdict: Result<Choice, NoDecision>, measured_at: i32) -> Option<i32> {
        let trigger = match self.alpha {
            None => Trigger::First,
            Some(_) if self.failed > 0 => Trigger::Repeat,
            Some(_) if self.config.amax.is_some() => Trigger::Interval,
            Some(_) if self.at_once => Trigger::AfterSkip,
            Some(_) => Trigger::Interval,
        };
        if let Ok(choice) = verdict {
            self.note_before();
            self.set(choice, measured_at, trigger);
            self.at_once = false;
            self.steps_since_update = 0;
        }
        self.alpha
    }

    /// Takes the row of a step, all micro-batches and calls merged, and how the step ended. Call it once for each
    /// optimizer step; intervals count these. A row of an update step that gives no decision (all zeros) leaves the
    /// update due.
    ///
    /// Under [`SiteConfig::amax`] every finite row enters the history, a skipped step's too, and decides for the next step.
    /// Rows of zeros and rows that are not finite change nothing, as Transformer Engine keeps a scale in force then.
    pub fn finish(&mut self, row: &Stats, end: StepEnd) {
        if let Some(amax) = self.config.amax {
            return self.follow_amax(amax, row, end);
        }
        let (before, repeated) = (self.before.take(), self.failed > 0);
        self.failed = 0;
        if let StepEnd::Stepped | StepEnd::Void = end {
            self.required_ceiling = None;
        }
        match end {
            StepEnd::Stepped => self.stepped(row, before.filter(|_| repeated)),
            StepEnd::SkippedHere => {
                self.record_lost_batch(row);
                if self.config.memory == Memory::Ring {
                    self.require_ceiling(finite_part(row));
                }
                self.push_history(row);
                self.decide_from(row, Trigger::Overflow);
                // A row that is not finite decided nothing.
                self.at_once |= self.config.calls == Calls::One || row.counts().non_finite() != 0;
            }
            StepEnd::SkippedAfter => {
                let counts = row.counts();
                let finite = counts.non_finite() == 0 && counts.overflowed == 0;
                self.at_once |= self.config.calls == Calls::One || !finite;
            }
            StepEnd::Void => {
                if let Some(Before { alpha, since, at_once }) = before {
                    (self.alpha, self.steps_since_update, self.at_once) = (alpha, since, at_once);
                }
            }
        }
    }

    /// `before` is what a repeat has changed.
    fn stepped(&mut self, row: &Stats, before: Option<Before>) {
        let ring = self.config.memory == Memory::Ring;
        if !ring {
            self.push_history(row);
        }
        let (counts, due) = (*row.counts(), self.is_update_due());
        let span = if ring { self.ring.window(None) } else { None };
        let own = ceiling(row);
        let apart = own.is_some_and(|own| ring && self.ring.window(Some(own)).is_some_and(|span| !span.contains(own)));
        if let Some(Before { alpha: Some(alpha), since, .. }) = before
            && apart
        {
            // It had an exponent of its own; the others keep theirs.
            (self.alpha, self.steps_since_update) = (Some(alpha), since);
        }
        self.steps_since_update = self.steps_since_update.saturating_add(1);
        if counts.infinite != 0 {
            // A mask hid ∞ from the parameters: perhaps a finite value times too large a factor. Such a row
            // decides nothing, and its site would never come down.
            self.at_once = true;
        } else if apart {
            // What it needs says nothing about the others. An update stays due.
        } else if counts.overflowed != 0 {
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
        if let Some((own, span)) = own.zip(span) {
            // Far smaller than all before: what is in force cannot serve the next of its kind.
            let fell = own.saturating_sub(span.max) > i64::from(self.config.exact.window());
            self.at_once |= fell && span.has_enough_samples && self.config.calls == Calls::One;
            self.guard.age(own);
        }
        if ring {
            self.push_history(row);
        }
    }

    fn note_before(&mut self) {
        let Self { alpha, steps_since_update: since, at_once, .. } = *self;
        self.before.get_or_insert(Before { alpha, since, at_once });
    }

    fn push_history(&mut self, row: &Stats) {
        if self.config.memory != Memory::None
            && let Some(ceiling) = ceiling(row)
        {
            self.ring.push(ceiling);
        }
    }
}
