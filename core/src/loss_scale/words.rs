//! A schedule as integers: configuration and state, so that save and restore lose nothing.

use super::{
    Bounds, Chainer, Delayed, DelayedConfig, Dynamic, DynamicConfig, FLOOR_STEPS, Fixed, Hysteresis, LogMax,
    LogMaxConfig, LossScale, RisingFloor, ScheduleError, dynamic, log_max,
};
use crate::fraction::Fraction;
use core::fmt;
use heapless::Vec;

/// Maximum number of words of a saved loss-scale schedule.
pub const WORDS: usize = 18 + 2 * FLOOR_STEPS;

/// State and settings of a loss-scale schedule, saved as 64-bit integers.
pub type Words = Vec<i64, WORDS>;

impl LossScale {
    /// Returns configuration and state of the loss scale as integers: kind, settings, limits, state.
    #[must_use]
    pub fn to_words(&self) -> Words {
        let mut words = Words::new();
        // Never fails, because WORDS suffices for each schedule; `tests/schedules.rs` saves the largest.
        let mut put = |values: &[i64]| words.extend_from_slice(values).unwrap_or_default();
        match self {
            Self::None => put(&[0]),
            Self::Fixed(fixed) => put(&[1, i64::from(fixed.exponent())]),
            Self::Dynamic(Dynamic { config, state }) => {
                let (mode, h) = match config.hysteresis {
                    Hysteresis::None => (0, 1),
                    Hysteresis::Cumulative(h) => (1, h),
                    Hysteresis::Consecutive(h) => (2, h),
                };
                put(&[2, i64::from(config.start), i64::from(config.growth), i64::from(config.backoff)]);
                put(&[i64::from(config.interval), i64::from(config.bounds.least), i64::from(config.bounds.most)]);
                put(&[mode, i64::from(h), i64::from(config.tolerance_ppm)]);
                put(&[i64::from(state.exponent), i64::from(state.clean), i64::from(state.patience)]);
                put(&[state.overflows, state.steps, state.taken].map(|count| count as i64));
                for &(taken, exponent) in config.floor.steps() {
                    put(&[taken as i64, i64::from(exponent)]);
                }
            }
            Self::LogMax(LogMax { config, state }) => {
                put(&[3]);
                put(&[config.mean_decay, config.spread_decay, config.quantile].map(|x| x.to_bits() as i64));
                put(&[config.ceiling, config.bounds.least, config.bounds.most, state.exponent].map(i64::from));
                put(&[i64::from(state.seen), state.mean, state.slow_mean, state.variance]);
            }
            Self::Chainer(Chainer { bounds, scale, doubling }) => {
                put(&[4, i64::from(bounds.least), i64::from(bounds.most), i64::from(scale.per_exponent())]);
                put(&[scale.units(), i64::from(*doubling)]);
            }
            Self::Gradient => put(&[5]),
            Self::Delayed(delayed) => {
                let DelayedConfig { history, margin, bounds } = *delayed.config();
                put(&[6, i64::from(history), i64::from(margin), i64::from(bounds.least), i64::from(bounds.most)]);
                delayed.allowed().iter().for_each(|&exponent| put(&[i64::from(exponent)]));
            }
        }
        words
    }

    /// Restores the loss-scale schedule that [`LossScale::to_words`] saved.
    ///
    /// # Errors
    /// [`StateError`] for words that no schedule saves.
    pub fn from_words(words: &[i64]) -> Result<Self, StateError> {
        let schedule = match *words {
            [0] => Self::None,
            [1, exponent] => Self::Fixed(Fixed::new(small(exponent)?).ok_or(StateError::Value)?),
            [
                2,
                start,
                growth,
                backoff,
                interval,
                least,
                most,
                mode,
                h,
                ppm,
                exponent,
                clean,
                patience,
                overflows,
                steps,
                taken,
                ref floor @ ..,
            ] => {
                let h = small(h)?;
                let mut pairs: Vec<(u64, i32), FLOOR_STEPS> = Vec::new();
                let chunks = floor.chunks_exact(2);
                if !chunks.remainder().is_empty() {
                    return Err(StateError::Length);
                }
                for chunk in chunks {
                    let &[taken, exponent] = chunk else { return Err(StateError::Length) };
                    pairs.push((unsigned(taken), small(exponent)?)).map_err(|_| StateError::Length)?;
                }
                let config = DynamicConfig {
                    start: small(start)?,
                    growth: small(growth)?,
                    backoff: small(backoff)?,
                    interval: small(interval)?,
                    bounds: Bounds::new(small(least)?, small(most)?)?,
                    hysteresis: match mode {
                        0 => Hysteresis::None,
                        1 => Hysteresis::Cumulative(h),
                        2 => Hysteresis::Consecutive(h),
                        _ => return Err(StateError::Value),
                    },
                    tolerance_ppm: small(ppm)?,
                    floor: RisingFloor::new(&pairs)?,
                };
                let mut dynamic = Dynamic::new(config)?;
                dynamic.state = dynamic::State {
                    exponent: inside(dynamic.config.bounds, exponent)?,
                    clean: small(clean)?,
                    patience: small(patience)?,
                    // Every u64 is a valid count; its bits were saved.
                    overflows: unsigned(overflows),
                    steps: unsigned(steps),
                    taken: unsigned(taken),
                };
                // Invalid, because a run of finite steps of this length would have grown the scale.
                if dynamic.state.clean >= dynamic.config.interval {
                    return Err(StateError::Value);
                }
                Self::Dynamic(dynamic)
            }
            [
                3,
                mean_decay,
                spread_decay,
                quantile,
                ceiling,
                least,
                most,
                exponent,
                seen,
                mean,
                slow_mean,
                variance,
            ] => {
                let float = |bits: i64| f64::from_bits(unsigned(bits));
                let mut log_max = LogMax::new(LogMaxConfig {
                    mean_decay: float(mean_decay),
                    spread_decay: float(spread_decay),
                    quantile: float(quantile),
                    ceiling: small(ceiling)?,
                    bounds: Bounds::new(small(least)?, small(most)?)?,
                })?;
                let exponent = inside(log_max.config.bounds, exponent)?;
                let far = |units: i64| units.unsigned_abs() > 1 << 40;
                if far(mean) || far(slow_mean) || !(0..=1 << 56).contains(&variance) {
                    return Err(StateError::Value);
                }
                log_max.state = log_max::State { seen: small(seen)?, mean, slow_mean, variance, exponent };
                Self::LogMax(log_max)
            }
            [4, least, most, interval, units, doubling] => {
                let bounds = Bounds::new(small(least)?, small(most)?)?;
                let mut chainer = Chainer::new(small(interval)?, bounds)?;
                let scale: Fraction = chainer.scale.with_units(units, bounds.least, bounds.most);
                if scale.units() != units || !(0..=1).contains(&doubling) {
                    return Err(StateError::Value);
                }
                chainer.scale = scale;
                chainer.doubling = doubling == 1;
                Self::Chainer(chainer)
            }
            [5] => Self::Gradient,
            [6, history, margin, least, most, ref allowed @ ..] => {
                let bounds = Bounds::new(small(least)?, small(most)?)?;
                let mut delayed =
                    Delayed::new(DelayedConfig { history: small(history)?, margin: small(margin)?, bounds })?;
                for &exponent in allowed {
                    delayed.see(small(exponent)?);
                }
                // Valid histories are no longer than the setting and contain only exponents that a step can allow.
                if !delayed.allowed().iter().map(|&exponent| i64::from(exponent)).eq(allowed.iter().copied()) {
                    return Err(StateError::Value);
                }
                Self::Delayed(delayed)
            }
            _ => return Err(StateError::Length),
        };
        Ok(schedule)
    }
}

/// Returns the bits of a word as a count; Rust has a method for it since 1.87 only.
fn unsigned(word: i64) -> u64 {
    u64::from_ne_bytes(word.to_ne_bytes())
}

fn small<T: TryFrom<i64>>(word: i64) -> Result<T, StateError> {
    T::try_from(word).map_err(|_| StateError::Value)
}

fn inside(bounds: Bounds, exponent: i64) -> Result<i32, StateError> {
    let exponent = small(exponent)?;
    if bounds.clamp(exponent) == exponent { Ok(exponent) } else { Err(StateError::Value) }
}

/// Reason why words are not a saved loss-scale schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum StateError {
    /// The saved loss scale has an unknown kind, or too few or too many words for it.
    Length,
    /// A word of the saved loss scale has an invalid value.
    Value,
    /// The saved settings of the loss scale are invalid.
    Schedule(ScheduleError),
}

impl From<ScheduleError> for StateError {
    fn from(error: ScheduleError) -> Self {
        Self::Schedule(error)
    }
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("a saved loss scale has an unknown kind or length"),
            Self::Value => f.write_str("a saved loss scale has an invalid number"),
            Self::Schedule(error) => write!(f, "a saved loss scale has an invalid schedule: {error}"),
        }
    }
}

impl core::error::Error for StateError {}
