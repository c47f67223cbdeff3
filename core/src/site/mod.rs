//! State machine of one cast site.
//!
//! The state is the accumulated exponent α, the history of ceilings, the guard, and the flag `at_once`. In pseudo-code,
//! with the rule of [`crate::solve`] as `rule`, for a site with one call in a step:
//!
//! ```text
//! request:                               before the store
//!     decide inside the step if at_once
//!     observe a histogram if so, or if the update is due; else counters only
//! decide(row of a first run):            only inside the step
//!     α = exponent of the row + rule(row, history, guard)
//!     at_once = false
//! store at α, which gives the row of the attempt
//! repeat(row):                           the attempt overflowed, and the same batch follows
//!     required ceiling = lowest ceiling so far
//!     at_once = true
//! finish(row, end):                      once per step
//!     Stepped        count the step; if the update is due, α = rule(row, history, guard)
//!                    append the row's ceiling to the history; age the guard
//!     Skipped        start the guard; append the ceiling; decide from the row; at_once = true
//!     SkippedDownstream   at_once = true
//!     RolledBack     restore the state before the first attempt
//! ```
//!
//! The real code differs, for these reasons:
//!
//! 1. The state is α and not the local factor β = 2^(α − α of the incoming gradient). If β were kept, the errors of all
//!    sites would accumulate along the chain; 20 % of the steps were skipped that way (`docs/specification.md`,
//!    section 6).
//!
//! 2. A decision inside the step needs the values before they are stored, so the operator runs twice and the host waits
//!    for the device. Therefore it is the exception: the first step, a repeat, and the steps after a skip. All other
//!    decisions use the row that the store has observed anyway, and take effect in the next step.
//!
//! 3. Rows have a histogram only in steps whose update is due, because it is 1 KiB per site instead of 64 bytes. A row
//!    without one that overflows lowers α from its largest magnitude, and the next row decides.
//!
//! 4. A row whose ceiling is outside the window of the history belongs to a batch that FP16 cannot serve together with
//!    the others. After its repeat α returns to the exponent of the others. Otherwise the next ordinary batch would
//!    flush, for example after one batch of 2^60 times the magnitude.
//!
//! 5. `before` holds the state from before the first attempt. A batch that no exponent cures must leave no trace,
//!    although its attempts have decided. Only a step that ends with an update, or with a skip that says something about
//!    the next batch, keeps their decisions.
//!
//! 6. The required ceiling outlives a skip. The caller may run the same batch again as a new step, and its first attempt
//!    must then leave the headroom that the failed ones have found necessary.
//!
//! 7. A site downstream of the overflow has a row of ±∞, from which nothing follows. It decides inside the next step, and
//!    learns from the excess of the site that overflowed ([`Site::limit_from_upstream`], [`Site::assume_upstream_growth`]), because the backward pass is
//!    linear in the loss.
//!
//! 8. A mask can hide an overflow or ±∞ from the parameters, so that the step is applied. An overflow then decides from
//!    the row as it is. ±∞ sets `at_once`, because such a row decides nothing and α would never fall.
//!
//! 9. If values fall far below the history, α is too low for them. The next step decides inside, since otherwise they
//!    would flush until the next update.
//!
//! 10. Several calls share α, and only the first one could decide inside the step, before the others are known. Such a
//!     site does so only in the first step and after a row that was not finite. In a repeat it decides from the merged
//!     row, with 8 bits more headroom for each further repeat.
//!
//! 11. A site of the forward pass ([`Site::forward`]) lowers its exponent and does not raise it, unless it may. Values
//!     that are all zero or infinite then have exponent 0: a mask of −∞ is no overflow, and waiting for a decision would
//!     cost every step a wait for the device. If the large values would flush most others, as a mask of −10^38 does, the
//!     exponent is 0 too.
//!
//! 12. Under [`SiteConfig::amax`] every finite row decides, and there is no window, guard or repeat, as in Transformer
//!     Engine.

mod amax;
mod ceiling_history;
mod config;
mod decision;
mod history;
mod overflow_guard;
mod overflow_recovery;
mod state;
mod words;

pub use ceiling_history::{CEILING_HISTORY_LEN, MAX_CEILING_SPREAD};
pub use config::{Calls, Memory, SiteConfig, When};
pub use history::{DECISION_HISTORY_LEN, Decision, Trigger};
pub use overflow_guard::{GUARD_STEPS, Guard, MAX_GUARD_STEPS};
pub use state::SiteState;
pub use words::{WORDS, WordsError};

use crate::{
    solve::{Choice, MAX_WINDOW, NoDecision},
    stats::{Detail, Stats},
};
use ceiling_history::{CeilingHistory, CeilingWindow};
use decision::{ceiling, finite_part};
use heapless::Deque;

/// Result of a step for one site: applied or skipped, and where it overflowed.
///
/// A runtime that has only one gradient must skip the step if it overflowed. It then knows all rows of that step. The
/// site that overflowed first, and those before it in the backward pass, are `Skipped`, the others `SkippedDownstream`:
///
/// ```
/// use gradscale_core::{site::{SiteOutcome, Site, SiteConfig}, stats::{Convention, Stats}};
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
/// // A batch with gradients 2^40 times as large: the first site overflows, and all values downstream are ±∞.
/// let large = row(&logits, 1e6);
/// assert_eq!(large.counts().overflowed, 1);
/// let behind = row(&layer, f32::INFINITY);
/// logits.finish(&large, SiteOutcome::Skipped);
/// layer.finish(&behind, SiteOutcome::SkippedDownstream);
/// // Both decide inside the next step, from their own values, before they are stored.
/// assert!(logits.request().at_once && layer.request().at_once);
/// # Ok::<(), gradscale_core::solve::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SiteOutcome {
    /// The step was applied: the optimizer updated the parameters.
    Stepped,
    /// The step was skipped, and this site is the first that overflowed, or precedes it: its row is finite. If no site
    /// overflowed, all are of this kind.
    Skipped,
    /// The step was skipped, and this site is downstream of the first that overflowed: its row has no usable values.
    SkippedDownstream,
    /// The step was skipped for a reason that no exponent cures. All state is as before the step.
    RolledBack,
}

/// Pass of a training step in which a site stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SitePass {
    /// Site of a gradient.
    Backward,
    /// Site of an activation.
    Forward {
        /// True if small values are scaled up. Otherwise the exponent is at most 0, so that only large values change.
        raises: bool,
    },
}

/// Instructions of a site for the next step: when to decide, and what to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// True if the exponent is decided inside the step, before the store ([`Site::decide`]).
    pub at_once: bool,
    /// Detail of statistics in the row that [`Site::finish`] needs.
    pub detail: Detail,
}

/// State of a site before the attempts of a step, for a rollback.
#[derive(Clone, Copy, Debug)]
struct Before {
    alpha: Option<i32>,
    since: u32,
    at_once: bool,
}

/// One cast site: its exponent, the schedule of its decisions, and their reasons.
///
/// ```
/// use gradscale_core::{site::{SiteOutcome, Site, SiteConfig, Trigger}, stats::{Convention, Stats}};
///
/// let mut site = Site::new(SiteConfig::exact())?;
/// let gradient = [1e-9f32, 3e-8, -2e-10, 0.0];
///
/// // The first step decides inside the step: observe the f32 values unscaled, decide, store scaled.
/// let mut probe = Stats::new(Convention::FP16, 0, site.request().detail);
/// probe.observe(&gradient);
/// let alpha = site.decide(site.exact(&probe), probe.exponent()).expect("not all zero");
///
/// // Pass the row of every step to `finish`.
/// let mut row = Stats::new(Convention::FP16, alpha, site.request().detail);
/// row.observe(&gradient.map(|x| x * 2f32.powi(alpha)));
/// site.finish(&row, SiteOutcome::Stepped);
/// assert_eq!(site.alpha(), Some(19));
/// assert_eq!(site.history().next().map(|decision| decision.trigger), Some(Trigger::First));
/// # Ok::<(), gradscale_core::solve::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Site {
    config: SiteConfig,
    pass: SitePass,
    alpha: Option<i32>,
    steps_since_update: u32,
    at_once: bool,
    ring: CeilingHistory,
    guard: Guard,
    history: Deque<Decision, DECISION_HISTORY_LEN>,
    /// State of the site before the first decision of this step, if there was one.
    before: Option<Before>,
    /// Number of attempts of this step that overflowed.
    failed: u8,
    /// Lowest ceiling seen in, or extrapolated from, the failed attempts of this step.
    required_ceiling: Option<i64>,
}

impl Site {
    /// Creates a cast site that has not decided yet.
    ///
    /// # Errors
    /// [`crate::solve::ConfigError`] for invalid settings, for example an interval of 0.
    pub fn new(config: SiteConfig) -> Result<Self, crate::solve::ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            pass: SitePass::Backward,
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

    /// Creates the site of a forward store that has not decided yet. With `raises`, small values are scaled up too.
    ///
    /// # Errors
    /// See [`Site::new`].
    ///
    /// ```
    /// use gradscale_core::{site::{Site, SiteConfig}, stats::{Convention, Stats}};
    /// let mut site = Site::forward(SiteConfig::exact(), false)?;
    /// let mut row = Stats::new(Convention::FP16, 0, site.request().detail);
    /// row.observe(&[1e6, 3e5, 1.0]);
    /// assert!(site.decide(site.exact(&row), 0).expect("not all zero") <= -4);
    /// // Where nothing overflows, the exponent is 0.
    /// let mut site = Site::forward(SiteConfig::exact(), false)?;
    /// let mut row = Stats::new(Convention::FP16, 0, site.request().detail);
    /// row.observe(&[0.25, 0.5]);
    /// assert_eq!(site.decide(site.exact(&row), 0), Some(0));
    /// # Ok::<(), gradscale_core::solve::ConfigError>(())
    /// ```
    pub fn forward(config: SiteConfig, raises: bool) -> Result<Self, crate::solve::ConfigError> {
        // The rule stays this many exponents above the flush threshold, if there is room. So the maximum means the largest
        // exponent that does not overflow.
        let exact = if raises { config.exact } else { config.exact.with_window(MAX_WINDOW)? };
        Ok(Self { pass: SitePass::Forward { raises }, ..Self::new(SiteConfig { exact, ..config })? })
    }

    /// Returns the pass in which the site stores.
    #[must_use]
    pub const fn pass(&self) -> SitePass {
        self.pass
    }

    /// Returns the configuration of the cast site.
    #[must_use]
    pub const fn config(&self) -> &SiteConfig {
        &self.config
    }

    /// Returns the exponent of the site in force; `None` before the first decision.
    #[must_use]
    pub const fn alpha(&self) -> Option<i32> {
        self.alpha
    }

    /// Returns the last decisions of the site, oldest first.
    pub fn history(&self) -> impl Iterator<Item = &Decision> {
        self.history.iter()
    }

    /// Returns true if the row of the next step must decide the site's exponent.
    fn is_update_due(&self) -> bool {
        self.steps_since_update >= self.config.interval
    }

    /// Returns the instructions of the site for the next step.
    #[must_use]
    pub fn request(&self) -> Request {
        let at_once = self.at_once || self.config.when == When::AtOnce && self.is_update_due();
        let update = at_once || self.is_update_due();
        Request { at_once, detail: if update { self.config.detail() } else { Detail::Counts } }
    }

    /// Applies a decision made inside the step and returns the exponent for the store. The decision is relative to
    /// `measured_at`, the exponent of the row from which it was made. Without a decision the state is unchanged. If it
    /// returns `None`, store at the incoming exponent.
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
        } else if let SitePass::Forward { .. } = self.pass {
            self.note_before();
            self.alpha = self.alpha.or(Some(0));
            self.at_once = false;
        }
        self.alpha
    }

    /// Takes the row of a step, merged over all micro-batches and calls, and the step's result. Call it once for each
    /// optimizer step, because intervals count these calls. If the row of an update step gives no decision (all zeros),
    /// the update remains due.
    ///
    /// Under [`SiteConfig::amax`] every finite row enters the history and decides for the next step, even the row of a
    /// skipped step. Rows of zeros and rows that are not finite change nothing, because Transformer Engine keeps its
    /// scale in these cases.
    pub fn finish(&mut self, row: &Stats, end: SiteOutcome) {
        if let Some(amax) = self.config.amax {
            return self.follow_amax(amax, row, end);
        }
        let (before, repeated) = (self.before.take(), self.failed > 0);
        self.failed = 0;
        if let SiteOutcome::Stepped | SiteOutcome::RolledBack = end {
            self.required_ceiling = None;
        }
        match end {
            SiteOutcome::Stepped => self.stepped(row, before.filter(|_| repeated)),
            SiteOutcome::Skipped => {
                self.record_lost_batch(row);
                if self.config.memory == Memory::Ring {
                    self.require_ceiling(finite_part(row));
                }
                self.push_history(row);
                self.decide_from(row, Trigger::Overflow);
                // A row that is not finite has decided nothing.
                self.at_once |= self.config.calls == Calls::One || row.counts().non_finite() != 0;
            }
            SiteOutcome::SkippedDownstream => {
                let counts = row.counts();
                let finite = counts.non_finite() == 0 && counts.overflowed == 0;
                self.at_once |= self.config.calls == Calls::One || !finite;
            }
            SiteOutcome::RolledBack => {
                if let Some(Before { alpha, since, at_once }) = before {
                    (self.alpha, self.steps_since_update, self.at_once) = (alpha, since, at_once);
                }
            }
        }
    }

    /// Handles a step that was applied. `before` is the state that a repeat has changed.
    fn stepped(&mut self, row: &Stats, before: Option<Before>) {
        let ring = self.config.memory == Memory::Ring;
        if !ring {
            self.push_history(row);
        }
        let (counts, due) = (*row.counts(), self.is_update_due());
        let span = if ring { self.span(None) } else { None };
        let own = ceiling(row);
        let apart = own.is_some_and(|own| ring && self.span(Some(own)).is_some_and(|span| !span.contains(own)));
        if let Some(Before { alpha: Some(alpha), since, .. }) = before.filter(|_| apart) {
            // This batch is outside the span and had its own exponent; the other batches keep theirs.
            (self.alpha, self.steps_since_update) = (Some(alpha), since);
        }
        self.steps_since_update = self.steps_since_update.saturating_add(1);
        if counts.infinite != 0 && self.pass == SitePass::Backward {
            // A mask hid ∞ from the parameters, perhaps a finite value times too large a factor. Such a row decides
            // nothing, so without this the exponent would never fall.
            self.at_once = true;
        } else if apart {
            // A row outside the span says nothing about other batches. An update stays due.
        } else if counts.overflowed != 0 {
            // A mask hid the overflow from the parameters.
            self.decide_from(row, Trigger::Overflow);
        } else if self.at_once && self.config.when == When::Between && self.config.calls == Calls::Several {
            // The first call had no values to decide from, but all calls together may have.
            let trigger = if self.alpha.is_none() { Trigger::First } else { Trigger::AfterSkip };
            self.decide_from(row, trigger);
            self.at_once = self.alpha.is_none();
        } else if due && self.config.when == When::Between && !self.at_once {
            self.decide_from(row, Trigger::Interval);
        }
        if let Some((own, span)) = own.zip(span) {
            // The magnitude fell far below the history, so the exponent in force cannot serve the next such batch.
            let fell = own.saturating_sub(span.max) > i64::from(self.config.exact.window());
            let fell = fell && self.pass != SitePass::Forward { raises: false };
            self.at_once |= fell && span.has_enough_samples && self.config.calls == Calls::One;
            self.guard.age(own);
        }
        if ring {
            self.push_history(row);
        }
    }

    /// Returns the window of ceilings that one exponent of the site's format serves.
    fn span(&self, own: Option<i64>) -> Option<CeilingWindow> {
        self.ring.window(own, self.config.format.max_ceiling_spread())
    }

    fn note_before(&mut self) {
        let Self { alpha, steps_since_update: since, at_once, .. } = *self;
        self.before.get_or_insert(Before { alpha, since, at_once });
    }

    fn push_history(&mut self, row: &Stats) {
        if self.config.memory != Memory::None {
            if let Some(ceiling) = ceiling(row) {
                self.ring.push(ceiling);
            }
        }
    }
}
