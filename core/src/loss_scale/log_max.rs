//! "LogMax": a loss scale that follows the distribution of the largest gradient (Kuchaiev et al. 2018).

use super::{Bounds, Feedback, ScheduleError};
use crate::{fraction::Fraction, scaled::Scaled};

/// Units of the state of a LogMax loss scale in one exponent: 2^24, so that a unit is about the relative resolution of
/// an f32.
pub(super) const UNITS: u32 = 1 << 24;

/// Settings of a LogMax loss scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogMaxConfig {
    /// Decay of the moving mean of log2 amax, in [0, 1).
    pub mean_decay: f64,
    /// Decay of the moving standard deviation of log2 amax, in [0, 1).
    pub spread_decay: f64,
    /// Number of standard deviations above the mean that must still fit. 3.09 is the quantile of 99.9 %.
    pub quantile: f64,
    /// log2 of the overflow threshold, 16 for FP16.
    pub ceiling: i32,
    /// Minimum and maximum exponent of the loss scale.
    pub bounds: Bounds,
}

impl Default for LogMaxConfig {
    fn default() -> Self {
        Self { mean_decay: 0.99, spread_decay: 0.999, quantile: 3.09, ceiling: 16, bounds: Bounds::default() }
    }
}

/// LogMax loss scale. The exponent is 16 − (μ + 3.09 s), with exponentially weighted mean μ and standard deviation s of
/// log2 amax. Both are corrected for their initial bias. Everything is computed with log2 values.
///
/// A step with found_inf counts as an amax one binade above the scale in force, and lowers that scale by at least one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogMax {
    pub(super) config: LogMaxConfig,
    pub(super) state: State,
}

/// State of a LogMax loss scale: log2 values in units of 2^-24, so that it is integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub seen: u32,
    pub mean: i64,
    pub slow_mean: i64,
    /// Moving variance of log2 amax, in units of 2^-24.
    pub variance: i64,
    pub exponent: i32,
}

impl LogMax {
    /// Creates a LogMax loss scale in its initial state, 2^0 (or the bound nearest to it).
    ///
    /// # Errors
    /// [`ScheduleError::Decay`] for decays outside [0, 1) or a quantile that is negative or not finite.
    pub fn new(config: LogMaxConfig) -> Result<Self, ScheduleError> {
        for decay in [config.mean_decay, config.spread_decay] {
            if !(0.0..1.0).contains(&decay) {
                return Err(ScheduleError::Decay(decay));
            }
        }
        if !(0.0..=1e3).contains(&config.quantile) {
            return Err(ScheduleError::Decay(config.quantile));
        }
        let state = State { seen: 0, mean: 0, slow_mean: 0, variance: 0, exponent: config.bounds.clamp(0) };
        Ok(Self { config, state })
    }

    /// Returns the settings of the LogMax loss scale.
    #[must_use]
    pub const fn config(&self) -> &LogMaxConfig {
        &self.config
    }

    /// Returns the exponent of the LogMax loss scale in force.
    #[must_use]
    pub const fn exponent(&self) -> i32 {
        self.state.exponent
    }

    /// Updates the LogMax loss scale after a step. A finite step without amax, or with zeros only, changes nothing.
    pub fn update(&mut self, feedback: &Feedback) {
        let before = self.state.exponent;
        if feedback.found_inf {
            let x = i64::from(self.config.ceiling.saturating_sub(before).saturating_add(1)).clamp(-RANGE, RANGE);
            let proposed = self.absorb(x * i64::from(UNITS));
            self.state.exponent = self.config.bounds.clamp(proposed.min(before - 1));
        } else if let Some(x) = feedback.amax.and_then(log2) {
            self.state.exponent = self.absorb(x);
        }
    }

    /// Adds one log2 amax to the moments and returns the exponent that follows.
    fn absorb(&mut self, x: i64) -> i32 {
        let state = &mut self.state;
        state.seen = state.seen.saturating_add(1);
        let fast = rate(self.config.mean_decay, state.seen);
        let slow = rate(self.config.spread_decay, state.seen);
        state.mean += part(x - state.mean, fast);
        // Weighted variance around the weighted mean, updated with the same normalised weights.
        let deviation = (x - state.slow_mean) as f64;
        state.slow_mean += part(x - state.slow_mean, slow);
        let square = deviation / f64::from(UNITS) * deviation;
        state.variance = nearest((1.0 - slow) * (state.variance as f64 + slow * square));
        let spread = libm::sqrt(state.variance as f64 / f64::from(UNITS)) * f64::from(UNITS);
        let top = state.mean.saturating_add(nearest(self.config.quantile * spread));
        let units = i64::from(self.config.ceiling) * i64::from(UNITS) - top;
        let bounds = self.config.bounds;
        Fraction::new(0, UNITS).with_units(units, bounds.least(), bounds.most()).exponent()
    }
}

/// Maximum magnitude of a log2 value in the state of a LogMax loss scale, in exponents. It is far beyond the range of
/// f32.
const RANGE: i64 = 4096;

/// Returns the weight of the newest of `seen` values in a moving mean, with all weights normalised to a sum of 1.
fn rate(decay: f64, seen: u32) -> f64 {
    (1.0 - decay) / (1.0 - libm::pow(decay, f64::from(seen)))
}

fn part(units: i64, share: f64) -> i64 {
    nearest(units as f64 * share)
}

#[expect(clippy::cast_possible_truncation, reason = "saturates; the state stays far below")]
fn nearest(x: f64) -> i64 {
    libm::round(x) as i64
}

/// Returns log2 of the true amax, in units of 2^-24; `None` for zero and for values that are not finite.
fn log2(amax: Scaled<f32>) -> Option<i64> {
    let magnitude = f64::from(amax.data.abs());
    if magnitude == 0.0 || !magnitude.is_finite() {
        return None;
    }
    let (digits, exponent) = libm::frexp(magnitude);
    let whole = (i64::from(exponent) - i64::from(amax.alpha)).clamp(-RANGE, RANGE);
    Some(whole * i64::from(UNITS) + nearest(libm::log2(digits) * f64::from(UNITS)))
}
