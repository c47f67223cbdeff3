//! Loss scales: one scale for all gradients, as usual in mixed-precision training. A new schedule is a file here, a
//! variant of [`LossScale`], and a table of fields in the engine's `src/method/schedule/fields.rs`.
//!
//! All schedules have one interface: an exponent in force, an update after each step, and a state of integers that
//! includes everything, limits too.

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

/// Minimum and maximum exponent of a loss scale, so that it reaches neither 0 nor ∞.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    least: i32,
    most: i32,
}

impl Bounds {
    /// Creates the bounds of a loss scale from its minimum and maximum exponent.
    ///
    /// # Errors
    /// [`ScheduleError::Bounds`] unless −126 ≤ `least` ≤ `most` ≤ 126.
    pub const fn new(least: i32, most: i32) -> Result<Self, ScheduleError> {
        if -126 <= least && least <= most && most <= 126 {
            Ok(Self { least, most })
        } else {
            Err(ScheduleError::Bounds { least, most })
        }
    }

    /// Returns the minimum exponent of the loss scale.
    #[must_use]
    pub const fn least(self) -> i32 {
        self.least
    }

    /// Returns the maximum exponent of the loss scale.
    #[must_use]
    pub const fn most(self) -> i32 {
        self.most
    }

    fn clamp(self, exponent: i32) -> i32 {
        // `clamp` would assert that the bounds are ordered, which `new` has checked.
        exponent.min(self.most).max(self.least)
    }
}

impl Default for Bounds {
    /// Returns the default bounds of a loss scale, 2^-24 to 2^30.
    fn default() -> Self {
        Self { least: -24, most: 30 }
    }
}

/// Result of a training step, as input of a loss scale's update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Feedback {
    /// True if a parameter gradient was not finite and the step was skipped.
    pub found_inf: bool,
    /// Largest gradient magnitude, with the exponent at which it was measured. Only [`LogMax`] and [`Delayed`] need it.
    pub amax: Option<Scaled<f32>>,
}

impl Feedback {
    /// Feedback of a step with finite gradients.
    pub const FINITE: Self = Self { found_inf: false, amax: None };
    /// Feedback of a step that was skipped.
    pub const FOUND_INF: Self = Self { found_inf: true, amax: None };
}

/// Loss-scale schedule of any kind, with its whole state.
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
    /// No loss scaling: 2^0 in every step.
    None,
    /// Fixed loss scale, the same in every step.
    Fixed(Fixed),
    /// Dynamic loss scale, which grows after finite steps and shrinks after overflows.
    Dynamic(Dynamic),
    /// LogMax loss scale, which follows the distribution of log2 amax.
    LogMax(LogMax),
    /// Chainer's loss scale, the paper's baseline, which grows in every step.
    Chainer(Chainer),
    /// Delayed loss scale: the largest one that the largest gradient of the last steps allows.
    Delayed(Delayed),
    /// Gradient scaling: every site has its own exponent, and the loss has none. An additional loss scale would change
    /// nothing, bit for bit, and the sites handle found_inf themselves.
    Gradient,
}

impl LossScale {
    /// Returns the exponent of the loss scale in force for the next step.
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

    /// Updates the schedule after a step. Call it once for each optimizer step, skipped ones included.
    pub fn update(&mut self, feedback: &Feedback) {
        match self {
            Self::None | Self::Gradient | Self::Fixed(_) => {}
            Self::Dynamic(dynamic) => dynamic.update(feedback.found_inf),
            Self::LogMax(log_max) => log_max.update(feedback),
            Self::Chainer(chainer) => chainer.update(feedback.found_inf),
            Self::Delayed(delayed) => delayed.update(feedback),
        }
    }

    /// Returns the number of finite steps until the loss scale can first grow. `None` for schedules that stay constant
    /// or follow the gradients, and for a scale at its maximum.
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

    /// Creates a fixed loss scale from its value, a power of two.
    ///
    /// # Errors
    /// [`ScheduleError::Scale`] unless `scale` is a power of two from 2^-126 to 2^126.
    pub fn fixed(scale: f64) -> Result<Self, ScheduleError> {
        let exponent = crate::scale::exponent_of(scale).ok();
        exponent.and_then(Fixed::new).map(Self::Fixed).ok_or(ScheduleError::Scale(scale))
    }
}

/// Fixed loss scale, the same in every step: 2^-126 to 2^126.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixed(i32);

impl Fixed {
    /// Creates the fixed loss scale 2^`exponent`; `None` outside −126 to 126.
    #[must_use]
    pub const fn new(exponent: i32) -> Option<Self> {
        if -126 <= exponent && exponent <= 126 { Some(Self(exponent)) } else { None }
    }

    /// Returns the exponent of the fixed scale.
    #[must_use]
    pub const fn exponent(self) -> i32 {
        self.0
    }
}

/// Exponents of the usual sweep for a fixed scale, 8 to 32768 (Micikevicius et al. 2018).
pub const SWEEP: core::ops::RangeInclusive<i32> = 3..=15;

/// Returns the largest fixed scale for gradients whose largest magnitude was `amax`: amax · 2^k < 65504. `None` if
/// `amax` is zero or not finite.
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

/// Reason why a loss-scale schedule cannot be created.
#[derive(Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Error: the loss scale is not a power of two, or out of range.
    Scale(f64),
    /// Error: the limits of a loss scale are invalid.
    Bounds {
        /// Rejected minimum exponent of the loss scale.
        least: i32,
        /// Rejected maximum exponent of the loss scale.
        most: i32,
    },
    /// Error: the initial exponent of the loss scale is outside the limits.
    Start(i32),
    /// Error: a growth exponent is not positive, or a backoff exponent is not negative.
    Factor(i32),
    /// Error: an interval or a hysteresis is 0 steps.
    Interval,
    /// Error: a tolerance is 10⁶ parts per million or more.
    Tolerance(u32),
    /// Error: a rising minimum falls, exceeds the limits or has too many steps.
    Floor,
    /// Error: a decay is outside [0, 1), or a quantile is not finite.
    Decay(f64),
    /// Error: a history has no steps, or more than [`DELAYED_STEPS`].
    History(u32),
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale(scale) => write!(f, "a loss scale must be a power of two from 2^-126 to 2^126, not {scale}"),
            Self::Bounds { least, most } => write!(f, "2^{least} to 2^{most} are not valid limits of a loss scale"),
            Self::Start(start) => write!(f, "the first scale, 2^{start}, is outside the limits"),
            Self::Factor(exponent) => {
                write!(f, "the growth factor must be above 1 and the backoff factor below 1, not 2^{exponent}")
            }
            Self::Interval => f.write_str("intervals and hysteresis must be at least one step"),
            Self::Tolerance(ppm) => write!(f, "a tolerance must be below 1, not {ppm} parts per million"),
            Self::Floor => {
                f.write_str("a rising minimum must have at most eight increasing exponents, all within the limits")
            }
            Self::Decay(decay) => write!(f, "a decay must be in [0, 1), not {decay}"),
            Self::History(steps) => write!(f, "a history must hold 1 to {DELAYED_STEPS} steps, not {steps}"),
        }
    }
}

crate::sentence!(ScheduleError);

impl core::error::Error for ScheduleError {}
