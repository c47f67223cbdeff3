//! Learning-rate schedules.

use std::{f64::consts::PI, fmt, sync::Arc};

/// Learning-rate schedule: factor of all learning rates as a function of the number of steps so far.
#[derive(Clone)]
pub enum Schedule {
    /// Learning-rate schedule without change: factor 1 at every step.
    Constant,
    /// Step schedule: the factor is multiplied by `factor` after every `every` steps.
    Step {
        /// Number of steps between two changes of the learning rate.
        every: u64,
        /// Factor of the learning rate at each change.
        factor: f64,
    },
    /// Cosine schedule: half a cosine from 1 to 0 over `steps` steps, then 0.
    Cosine {
        /// Number of steps until the cosine reaches 0.
        steps: u64,
    },
    /// Polynomial schedule: (1 − t / steps)^power, then 0.
    Polynomial {
        /// Number of steps until the learning rate is 0.
        steps: u64,
        /// Power of the polynomial, 1 for a linear decrease.
        power: f64,
    },
    /// Cosine schedule with warm-up: linear from 1/`warmup` to 1, then half a cosine to 0 at `steps`.
    WarmupCosine {
        /// Number of steps in which the learning rate grows linearly.
        warmup: u64,
        /// Total number of steps, with those of the warm-up.
        steps: u64,
    },
    /// Custom learning-rate schedule ([`Schedule::own`]).
    Custom(Factor),
}

/// Function of a custom learning-rate schedule: from the number of steps so far to a factor.
pub type Factor = Arc<dyn Fn(u64) -> f64 + Send + Sync>;

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("Constant"),
            Self::Step { every, factor } => {
                f.debug_struct("Step").field("every", every).field("factor", factor).finish()
            }
            Self::Cosine { steps } => f.debug_struct("Cosine").field("steps", steps).finish(),
            Self::Polynomial { steps, power } => {
                f.debug_struct("Polynomial").field("steps", steps).field("power", power).finish()
            }
            Self::WarmupCosine { warmup, steps } => {
                f.debug_struct("WarmupCosine").field("warmup", warmup).field("steps", steps).finish()
            }
            Self::Custom(_) => f.write_str("Own"),
        }
    }
}

impl Schedule {
    /// Creates a custom schedule. A checkpoint records that there was one, but cannot compare it, so the caller must
    /// pass the same one.
    ///
    /// ```
    /// use gradscale::optim::Schedule;
    /// let restarts = Schedule::own(|step| 0.5f64.powi((step / 100) as i32) * (1.0 - (step % 100) as f64 / 100.0));
    /// assert_eq!(restarts.factor(150), 0.25);
    /// ```
    #[must_use]
    pub fn own(factor: impl Fn(u64) -> f64 + Send + Sync + 'static) -> Self {
        Self::Custom(Arc::new(factor))
    }

    /// Returns the factor of the learning rates in the step after `step` others.
    ///
    /// ```
    /// use gradscale::optim::Schedule;
    /// assert_eq!(Schedule::Step { every: 10, factor: 0.5 }.factor(25), 0.25);
    /// assert_eq!(Schedule::Cosine { steps: 100 }.factor(100), 0.0);
    /// ```
    #[must_use]
    pub fn factor(&self, step: u64) -> f64 {
        let progress = |from: u64, to: u64| {
            let done = step.saturating_sub(from) as f64 / (to.saturating_sub(from)).max(1) as f64;
            done.min(1.0)
        };
        match *self {
            Self::Custom(ref factor) => factor(step),
            Self::Constant => 1.0,
            Self::Step { every, factor } => {
                let times = step.checked_div(every).unwrap_or(0);
                factor.powi(i32::try_from(times).unwrap_or(i32::MAX))
            }
            Self::Cosine { steps } => cosine(progress(0, steps)),
            Self::Polynomial { steps, power } => (1.0 - progress(0, steps)).powf(power),
            Self::WarmupCosine { warmup, .. } if step < warmup => (step + 1) as f64 / warmup as f64,
            Self::WarmupCosine { warmup, steps } => cosine(progress(warmup, steps)),
        }
    }
}

/// Returns half a cosine of the progress: 1 at 0, 0 at 1.
fn cosine(progress: f64) -> f64 {
    if progress >= 1.0 { 0.0 } else { 0.5 * (1.0 + (PI * progress).cos()) }
}
