//! Delayed scaling: the largest scale that the largest gradient of the last steps allows (Transformer Engine's recipe).

use super::{Bounds, Feedback, ScheduleError, propose_fixed};
use heapless::Vec;

/// Maximum length in steps of the amax history of a delayed loss scale.
pub const DELAYED_STEPS: usize = 16;

/// Maximum magnitude of the exponents in the state of a delayed loss scale, in binades. It is far beyond the range of
/// f32.
const RANGE: i32 = 4096;

/// Settings of a delayed loss scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DelayedConfig {
    /// Length in steps of the amax history, 1 to [`DELAYED_STEPS`].
    pub history: u32,
    /// Headroom above the largest gradient in the history, in binades.
    pub margin: u32,
    /// Minimum and maximum exponent of the loss scale.
    pub bounds: Bounds,
}

impl Default for DelayedConfig {
    /// Returns the default settings: a history of 16 steps without margin.
    fn default() -> Self {
        Self { history: 16, margin: 0, bounds: Bounds::default() }
    }
}

/// Loss scale of delayed scaling. The exponent is the largest at which the largest gradient of the last `history` steps
/// would have stayed below 65504, minus `margin`.
///
/// The recipe keeps its scale if the largest gradient is not finite. A loss scale must not, because the next batch
/// would overflow as well. A step with found_inf counts as one that allows an exponent one less than that in force.
///
/// ```
/// use gradscale_core::{loss_scale::{Delayed, DelayedConfig, Feedback}, scaled::Scaled};
/// let mut scale = Delayed::new(DelayedConfig { history: 2, ..DelayedConfig::default() })?;
/// for (amax, exponent) in [(1.0, 15), (4.0, 13), (1.0, 13), (1.0, 15)] {
///     scale.update(&Feedback { found_inf: false, amax: Some(Scaled::new(amax, 0)) });
///     assert_eq!(scale.exponent(), exponent);
/// }
/// # Ok::<(), gradscale_core::loss_scale::ScheduleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    pub(super) config: DelayedConfig,
    /// History: the exponent that each of the last steps allows, oldest first.
    allowed: Vec<i32, DELAYED_STEPS>,
    exponent: i32,
}

impl Delayed {
    /// Creates a delayed loss scale in its initial state, 2^0 (or the bound nearest to it).
    ///
    /// # Errors
    /// [`ScheduleError::History`] unless the history has 1 to [`DELAYED_STEPS`] steps.
    pub fn new(config: DelayedConfig) -> Result<Self, ScheduleError> {
        if config.history == 0 || config.history as usize > DELAYED_STEPS {
            return Err(ScheduleError::History(config.history));
        }
        Ok(Self { config, allowed: Vec::new(), exponent: config.bounds.clamp(0) })
    }

    /// Returns the settings of the delayed loss scale.
    #[must_use]
    pub const fn config(&self) -> &DelayedConfig {
        &self.config
    }

    /// Returns the exponent of the delayed loss scale in force.
    #[must_use]
    pub const fn exponent(&self) -> i32 {
        self.exponent
    }

    /// Updates the delayed loss scale after a step. A finite step without amax, or with zeros only, changes nothing.
    pub fn update(&mut self, feedback: &Feedback) {
        let margin = self.margin();
        if feedback.found_inf {
            self.see((self.exponent - 1).saturating_add(margin));
        } else if let Some(allowed) = feedback.amax.and_then(propose_fixed) {
            self.see(allowed);
        }
    }

    /// Returns the history: the exponent that each of the last steps allows, oldest first.
    pub(super) fn allowed(&self) -> &[i32] {
        &self.allowed
    }

    /// Appends the exponent that one step allows to the history, and computes the exponent in force.
    pub(super) fn see(&mut self, exponent: i32) {
        let mut moved = exponent.clamp(-RANGE, RANGE);
        if self.allowed.len() == self.config.history as usize {
            // Each entry moves one index towards the front, and the oldest is dropped.
            self.allowed.iter_mut().rev().for_each(|place| core::mem::swap(place, &mut moved));
        } else {
            // There is space, because a history is never longer than DELAYED_STEPS.
            let _: Result<(), i32> = self.allowed.push(moved);
        }
        let least = self.allowed.iter().copied().min().unwrap_or(0);
        self.exponent = self.config.bounds.clamp(least.saturating_sub(self.margin()));
    }

    fn margin(&self) -> i32 {
        i32::try_from(self.config.margin).unwrap_or(i32::MAX)
    }
}
