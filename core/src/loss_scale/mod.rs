//! Loss scales: one number for all gradients, as mixed-precision training has had it.
//!
//! All schedules have one interface: an exponent in force, an update after each step, and a state of integers that
//! holds everything, limits included.

mod chainer;
mod delayed;
mod dynamic;
mod floor;
mod log_max;
mod words;

pub use chainer::Chainer;
pub use delayed::{DELAYED_STEPS, Delayed, DelayedConfig};
pub use dynamic::{Dynamic, DynamicConfig, Hysteresis};
pub use floor::{FLOOR_STEPS, RisingFloor};
pub use log_max::{LogMax, LogMaxConfig};
pub use words::{StateError, WORDS, Words};

use crate::{model::LAMBDA_MAX, scaled::Scaled};
use core::fmt;

/// Least and greatest exponent of a loss scale, so that it reaches neither 0 nor ∞.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    least: i32,
    most: i32,
}

impl Bounds {
    /// # Errors
    /// [`ScheduleError::Bounds`] unless −126 ≤ `least` ≤ `most` ≤ 126.
    pub const fn new(least: i32, most: i32) -> Result<Self, ScheduleError> {
        if -126 <= least && least <= most && most <= 126 {
            Ok(Self { least, most })
        } else {
            Err(ScheduleError::Bounds { least, most })
        }
    }

    /// The least exponent.
    #[must_use]
    pub const fn least(self) -> i32 {
        self.least
    }

    /// The greatest exponent.
    #[must_use]
    pub const fn most(self) -> i32 {
        self.most
    }

    fn clamp(self, exponent: i32) -> i32 {
        // `clamp` asserts that the bounds are ordered, which `new` has done.
        exponent.min(self.most).max(self.least)
    }
}

impl Default for Bounds {
    /// 2^-24 to 2^30.
    fn default() -> Self {
        Self { least: -24, most: 30 }
    }
}

/// What a schedule learns of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feedback {
    /// Some parameter gradient was not finite: the step was skipped.
    pub found_inf: bool,
    /// Largest gradient magnitude with the exponent it was seen at; [`LogMax`] and [`Delayed`] ask for it.
    pub amax: Option<Scaled<f32>>,
}

impl Feedback {
    /// Feedback of a step with finite gradients.
    pub const FINITE: Self = Self { found_inf: false, amax: None };
    /// A step that was skipped.
    pub const FOUND_INF: Self = Self { found_inf: true, amax: None };
}

/// A loss-scale schedule with its whole state.
///
/// ```
/// use gradscale_core::loss_scale::{Dynamic, Feedback, LossScale};
/// let mut scale = LossScale::Dynamic(Dynamic::default());
/// scale.update(&Feedback::FOUND_INF);
/// assert_eq!(scale.exponent(), 15);
/// let saved = scale.to_words();
/// assert_eq!(LossScale::from_words(&saved), Ok(scale));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum LossScale {
    /// 2^0.
    None,
    /// A constant.
    Fixed(Fixed),
    /// Grows after clean steps, shrinks after overflows.
    Dynamic(Dynamic),
    /// Follows the distribution of log2 amax.
    LogMax(LogMax),
    /// The paper's baseline: grows in every step.
    Chainer(Chainer),
    /// As large as the largest gradient of the last steps allows.
    Delayed(Delayed),
    /// Gradient scaling: every site has its exponent, and the loss none. An additional loss scale would change
    /// nothing, bit for bit, and found_inf is the sites' business.
    Gradient,
}

impl LossScale {
    /// The exponent in force for the next step.
    #[must_use]
    pub const fn exponent(&self) -> i32 {
        match self {
            Self::None | Self::Gradient => 0,
            Self::Fixed(fixed) => fixed.exponent(),
            Self::Dynamic(dynamic) => dynamic.exponent(),
            Self::LogMax(log_max) => log_max.exponent(),
            Self::Chainer(chainer) => chainer.exponent(),
            Self::Delayed(delayed) => delayed.exponent(),
        }
    }

    /// Takes the end of a step. Call it once for each optimizer step, skipped ones included.
    pub fn update(&mut self, feedback: &Feedback) {
        match self {
            Self::None | Self::Gradient | Self::Fixed(_) => {}
            Self::Dynamic(dynamic) => dynamic.update(feedback.found_inf),
            Self::LogMax(log_max) => log_max.update(feedback),
            Self::Chainer(chainer) => chainer.update(feedback.found_inf),
            Self::Delayed(delayed) => delayed.update(feedback),
        }
    }

    /// Clean steps until the scale can first grow from here. None for schedules that stay as they are or follow the
    /// gradients, and for one that stands at its greatest.
    ///
    /// ```
    /// use gradscale_core::loss_scale::{Dynamic, LossScale};
    /// assert_eq!(LossScale::Dynamic(Dynamic::default()).first_growth(), Some(2000));
    /// ```
    #[must_use]
    pub fn first_growth(&self) -> Option<u64> {
        match self {
            Self::None | Self::Gradient | Self::Fixed(_) | Self::LogMax(_) | Self::Delayed(_) => None,
            Self::Dynamic(dynamic) => dynamic.first_growth(),
            Self::Chainer(chainer) => (chainer.exponent() < chainer.bounds().most()).then_some(1),
        }
    }

    /// A fixed scale.
    ///
    /// # Errors
    /// [`ScheduleError::Scale`] unless `scale` is a power of two from 2^-126 to 2^126.
    pub fn fixed(scale: f64) -> Result<Self, ScheduleError> {
        let exponent = crate::scale::exponent_of(scale).ok();
        exponent.and_then(Fixed::new).map(Self::Fixed).ok_or(ScheduleError::Scale(scale))
    }
}

/// A constant scale, 2^-126 to 2^126.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixed(i32);

impl Fixed {
    /// 2^`exponent`; `None` outside −126 to 126.
    #[must_use]
    pub const fn new(exponent: i32) -> Option<Self> {
        if -126 <= exponent && exponent <= 126 { Some(Self(exponent)) } else { None }
    }

    /// The exponent.
    #[must_use]
    pub const fn exponent(self) -> i32 {
        self.0
    }
}

/// Exponents of the usual sweep for a fixed scale, 8 to 32768 (Micikevicius et al. 2018).
pub const SWEEP: core::ops::RangeInclusive<i32> = 3..=15;

/// The largest fixed scale for gradients whose largest magnitude was `amax`: amax · 2^k < 65504. `None` if it is
/// zero or not finite.
///
/// ```
/// use gradscale_core::{loss_scale::propose_fixed, scaled::Scaled};
/// assert_eq!(propose_fixed(Scaled::new(0.5, 0)), Some(16));
/// ```
#[must_use]
pub fn propose_fixed(amax: Scaled<f32>) -> Option<i32> {
    let magnitude = f64::from(amax.data.abs());
    let k = crate::model::floor_log2(LAMBDA_MAX / magnitude)?;
    let k = if libm::scalbn(magnitude, k) < LAMBDA_MAX { k } else { k - 1 };
    Some(k.saturating_add(amax.alpha))
}

/// Why a schedule cannot be built.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// A scale that is no power of two, or out of range.
    Scale(f64),
    /// Limits that are none.
    Bounds {
        /// Least exponent.
        least: i32,
        /// Greatest exponent.
        most: i32,
    },
    /// An exponent to start from outside the limits.
    Start(i32),
    /// Growth that does not grow, or backoff that does not back off.
    Factor(i32),
    /// An interval or a hysteresis of 0 steps.
    Interval,
    /// A tolerance of one or more.
    Tolerance(u32),
    /// A rising minimum that falls, exceeds the limits or has too many steps.
    Floor,
    /// A decay outside [0, 1), or a quantile that is not finite.
    Decay(f64),
    /// A history of no steps, or of more than [`DELAYED_STEPS`].
    History(u32),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale(scale) => write!(f, "a loss scale must be a power of two from 2^-126 to 2^126, not {scale}"),
            Self::Bounds { least, most } => write!(f, "2^{least} to 2^{most} are no limits of a loss scale"),
            Self::Start(start) => write!(f, "a start at 2^{start} lies outside the limits"),
            Self::Factor(exponent) => write!(f, "growth must be above and backoff below 2^0, not 2^{exponent}"),
            Self::Interval => f.write_str("intervals and hysteresis must be at least one step"),
            Self::Tolerance(ppm) => write!(f, "a tolerance must be below 1, not {ppm} parts per million"),
            Self::Floor => f.write_str("a rising minimum must rise, within the limits, in at most eight steps"),
            Self::Decay(decay) => write!(f, "a decay must lie in [0, 1), not {decay}"),
            Self::History(steps) => write!(f, "a history must hold 1 to {DELAYED_STEPS} steps, not {steps}"),
        }
    }
}

crate::sentence!(ScheduleError);

impl core::error::Error for ScheduleError {}
