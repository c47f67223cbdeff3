//! Schedules of the learning rate as text.

use super::text::{ParsedOptions, Text, shortest};
use gradscale::optim;
use std::{fmt, str::FromStr};

/// Learning-rate schedule over the steps taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Number of warm-up steps, in which rates grow linearly from 0.
    warmup: u64,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Constant,
    /// Step decay: the rate is multiplied by a factor at certain steps.
    Step {
        falls: Falls,
        factor: f64,
    },
    /// Cosine decay from 1 to 0 at step `steps`, or at the last step.
    Cosine {
        steps: Option<u64>,
    },
    /// Polynomial decay, with factor (1 − t)^power at share t of the steps.
    Polynomial {
        steps: Option<u64>,
        power: f64,
    },
}

#[derive(Clone, Debug, PartialEq)]
enum Falls {
    Every(u64),
    /// Decay at these steps, in ascending order.
    At(Vec<u64>),
}

const FACTOR: f64 = 0.1;
const POWER: f64 = 1.0;
/// Maximum number of steps in a schedule: more than any training has.
const MAX_STEPS: u64 = 1 << 40;
const STEPS: &str = "a whole number of steps from 1 to 2^40";

impl Default for Schedule {
    fn default() -> Self {
        Self { warmup: 0, shape: Shape::Constant }
    }
}

impl FromStr for Schedule {
    type Err = String;

    /// Parses `constant`, `step:every=100,factor=0.1`, `step:at=200/300`, `cosine`, `cosine:steps=1000`,
    /// `polynomial:power=0.9`, and any with `warmup=50`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = ParsedOptions::parse(text)?;
        let count = |count: &u64| (1..=MAX_STEPS).contains(count);
        let warmup = parts.number("warmup", STEPS, count)?.unwrap_or(0);
        let shape = match parts.name {
            "constant" => {
                parts.end("warmup")?;
                Shape::Constant
            }
            "step" => {
                let falls = match (parts.number("every", STEPS, count)?, parts.take("at")) {
                    (Some(every), None) => Falls::Every(every),
                    (None, Some(at)) => Falls::At(increasing(at)?),
                    (None, None) => {
                        return Err("step needs every or at, as in step:every=100 or \
                        step:at=200/300"
                            .to_owned());
                    }
                    (Some(_), Some(_)) => return Err("every and at cannot be combined".to_owned()),
                };
                let fits = |factor: &f64| *factor > 0.0 && *factor < 1.0;
                let factor = parts.number("factor", "a number between 0 and 1", fits)?.unwrap_or(FACTOR);
                parts.end("every, at, factor, warmup")?;
                Shape::Step { falls, factor }
            }
            "cosine" => {
                let steps = parts.number("steps", STEPS, count)?;
                parts.end("steps, warmup")?;
                Shape::Cosine { steps }
            }
            "polynomial" => {
                let steps = parts.number("steps", STEPS, count)?;
                let fits = |power: &f64| *power > 0.0 && *power <= 100.0;
                let power = parts.number("power", "a number above 0, to 100", fits)?.unwrap_or(POWER);
                parts.end("steps, power, warmup")?;
                Shape::Polynomial { steps, power }
            }
            other => {
                return Err(format!("{other:?} is not a schedule; choose constant, step, cosine or polynomial"));
            }
        };
        let schedule = Self { warmup, shape };
        schedule.check()?;
        Ok(schedule)
    }
}

/// Parses ascending steps separated by slashes, because commas separate options.
fn increasing(text: &str) -> Result<Vec<u64>, String> {
    let wrong = || format!("at must be increasing steps, as in 200/300, not {text:?}");
    let step = |part: &str| part.trim().parse().ok().filter(|step| (1..=MAX_STEPS).contains(step)).ok_or_else(wrong);
    let steps = text.split('/').map(step).collect::<Result<Vec<u64>, String>>()?;
    if steps.is_sorted_by(|a, b| a < b) { Ok(steps) } else { Err(wrong()) }
}

impl Schedule {
    fn check(&self) -> Result<(), String> {
        match self.end() {
            Some(steps) if self.warmup >= steps => {
                Err(format!("a warm-up of {} steps must be shorter than the schedule's {steps}", self.warmup))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the schedule for a training of `iters` steps, which replace a missing length.
    ///
    /// # Errors
    /// A warm-up that is as long; in words.
    pub fn over(mut self, iters: u64) -> Result<Self, String> {
        match &mut self.shape {
            Shape::Cosine { steps } | Shape::Polynomial { steps, .. } => *steps = Some(steps.unwrap_or(iters)),
            Shape::Constant | Shape::Step { .. } => {}
        }
        self.check()?;
        Ok(self)
    }

    /// Returns the step after which the rate is 0, if it is known.
    #[must_use]
    pub const fn end(&self) -> Option<u64> {
        match self.shape {
            Shape::Cosine { steps } | Shape::Polynomial { steps, .. } => steps,
            Shape::Constant | Shape::Step { .. } => None,
        }
    }

    /// Returns the engine's schedule. One without a length is constant; see [`Schedule::over`].
    #[must_use]
    pub fn engine(&self) -> optim::Schedule {
        let warmup = self.warmup;
        let ramp = move |step: u64| ((step + 1) as f64 / warmup as f64).min(1.0);
        match self.shape.clone() {
            Shape::Cosine { steps: None } | Shape::Polynomial { steps: None, .. } | Shape::Constant => match warmup {
                0 => optim::Schedule::Constant,
                _ => optim::Schedule::own(ramp),
            },
            Shape::Step { falls, factor } => {
                let falling = match falls {
                    Falls::Every(every) => optim::Schedule::Step { every, factor },
                    Falls::At(steps) => optim::Schedule::own(move |step| {
                        let passed = steps.partition_point(|at| *at <= step);
                        factor.powi(i32::try_from(passed).unwrap_or(i32::MAX))
                    }),
                };
                match warmup {
                    0 => falling,
                    _ => optim::Schedule::own(move |step| ramp(step) * falling.factor(step)),
                }
            }
            Shape::Cosine { steps: Some(steps) } => match warmup {
                0 => optim::Schedule::Cosine { steps },
                _ => optim::Schedule::WarmupCosine { warmup, steps },
            },
            Shape::Polynomial { steps: Some(steps), power } => {
                let falling = optim::Schedule::Polynomial { steps: steps - warmup, power };
                match warmup {
                    0 => falling,
                    _ => optim::Schedule::own(move |step| match step.checked_sub(warmup) {
                        None => ramp(step),
                        Some(step) => falling.factor(step),
                    }),
                }
            }
        }
    }
}

/// Implementation of `Display` by the shortest text that is parsed as this schedule.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.shape {
            Shape::Constant => "constant",
            Shape::Step { .. } => "step",
            Shape::Cosine { .. } => "cosine",
            Shape::Polynomial { .. } => "polynomial",
        };
        let mut text = Text::new(f, name)?;
        match &self.shape {
            Shape::Constant => {}
            Shape::Step { falls, factor } => {
                let (key, shown) = match falls {
                    Falls::Every(every) => ("every", every.to_string()),
                    Falls::At(steps) => ("at", steps.iter().map(u64::to_string).collect::<Vec<_>>().join("/")),
                };
                text.unless(&None, key, &Some(()), shown)?;
                text.unless(&FACTOR, "factor", factor, shortest(*factor))?;
            }
            Shape::Cosine { steps } => text.unless(&None, "steps", steps, steps.unwrap_or(0))?,
            Shape::Polynomial { steps, power } => {
                text.unless(&None, "steps", steps, steps.unwrap_or(0))?;
                text.unless(&POWER, "power", power, shortest(*power))?;
            }
        }
        text.unless(&0, "warmup", &self.warmup, self.warmup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the factors of a schedule before the given steps.
    fn factors<const N: usize>(text: &str, steps: [u64; N]) -> [f64; N] {
        let schedule: Schedule = text.parse().expect("a schedule");
        let engine = schedule.over(100).expect("a length").engine();
        steps.map(|step| engine.factor(step))
    }

    #[test]
    fn what_each_does() {
        assert_eq!(factors("constant", [0, 1000]), [1.0, 1.0]);
        assert_eq!(factors("constant:warmup=4", [0, 1, 3, 4]), [0.25, 0.5, 1.0, 1.0]);
        assert_eq!(factors("step:every=10,factor=0.5", [9, 10, 25]), [1.0, 0.5, 0.25]);
        assert_eq!(factors("step:at=10/15,factor=0.5", [9, 10, 14, 15, 99]), [1.0, 0.5, 0.5, 0.25, 0.25]);
        assert_eq!(factors("step:at=3,factor=0.5,warmup=8", [0, 3, 7, 8]), [0.125, 0.25, 0.5, 0.5]);
        // By default half a cosine over all steps of the training.
        assert_eq!(factors("cosine", [0, 100]), [1.0, 0.0]);
        assert!(factors("cosine", [50]).iter().all(|half| (half - 0.5).abs() < 1e-12));
        assert_eq!(factors("cosine:steps=10", [10, 99]), [0.0, 0.0]);
        assert_eq!(factors("cosine:steps=10,warmup=2", [0, 1, 2, 10]), [0.5, 1.0, 1.0, 0.0]);
        assert_eq!(factors("polynomial", [0, 25, 100]), [1.0, 0.75, 0.0]);
        assert_eq!(factors("polynomial:power=2,warmup=50", [24, 50, 75, 100]), [0.5, 1.0, 0.25, 0.0]);
    }

    #[test]
    fn a_warm_up_leaves_steps() {
        let schedule: Schedule = "cosine:warmup=100".parse().expect("of no length yet");
        assert_eq!(
            schedule.clone().over(100),
            Err("a warm-up of 100 steps must be shorter than the schedule's \
            100"
            .to_owned())
        );
        assert_eq!(schedule.over(101).map(|schedule| schedule.end()), Ok(Some(101)));
    }
}
