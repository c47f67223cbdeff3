//! Training of one regime by one method with one seed.

use super::{
    classifier,
    data::Data,
    eight_bits,
    learn::Begun,
    lock,
    network::{Learner, Net},
    regime::{Regime, Task},
    speech,
};
use crate::Failure;
use gradscale::{Cpu, Method, Scaling, Trainer, TrainerOptions};
use serde::Serialize;
use std::time::Instant;

fn open<'a>(regime: &Regime, data: &'a Data, seed: u64, steps: u64) -> Result<Begun<'a>, Failure> {
    Ok(match regime.task {
        Task::OrdinaryInEightBits => constructed(Net::Perceptron, data, seed, steps),
        Task::TasksInEightBits(spread) => eight_bits::open(spread, &data.images, seed, steps),
        Task::Constructed(net) => constructed(net, data, seed, steps),
        Task::BadSample(damage) => classifier::open(damage, data, seed, steps),
        Task::ShortRecordings { zero_infinity } => speech::open(zero_infinity, data, seed, steps)?,
        Task::RareReward => lock::open(seed),
    })
}

fn constructed(net: Net, data: &Data, seed: u64, steps: u64) -> Begun<'_> {
    let (learner, parameters, optimizer) = Learner::new(net, &data.images, seed, steps);
    Begun { learner: Box::new(learner), parameters, optimizer }
}

/// Result of the training of one regime by one method with one seed.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub regime: String,
    pub method: String,
    pub seed: u64,
    pub steps: u64,
    /// Test score; `None` if the training ended early or its weights are not finite.
    pub score: Option<f64>,
    pub higher_is_better: bool,
    pub skipped: u64,
    /// Number of skipped steps whose batch had finite gradients in f32.
    pub finite_skipped: u64,
    /// Exponent of the loss scale after the last step; `None` without a loss scale.
    pub scale: Option<i32>,
    /// Number of attempts that overflowed and were repeated.
    pub repeated: u64,
    pub seconds: f64,
    pub failure: Option<String>,
    /// Exponent of the site nearest the loss after each step; empty for f32.
    #[serde(skip)]
    pub exponents: Vec<f32>,
}

impl Row {
    /// Creates the row of a training before its first step.
    pub fn new(regime: &Regime, method: &str, seed: u64, steps: u64) -> Self {
        Self {
            regime: regime.name.clone(),
            method: method.to_owned(),
            seed,
            steps,
            score: None,
            higher_is_better: regime.task.higher_is_better(),
            skipped: 0,
            finite_skipped: 0,
            scale: None,
            repeated: 0,
            seconds: 0.0,
            failure: None,
            exponents: Vec::new(),
        }
    }
}

/// Trains the network of a regime, and calls `each` after every step.
///
/// # Errors
/// A device that cannot be opened, a method that does not fit. A training that ends early is a result.
pub fn train(
    regime: &Regime, data: &Data, (name, method): (&str, &Method), seed: u64, steps: u64, each: impl Fn(),
) -> Result<Row, Failure> {
    let Begun { mut learner, parameters, optimizer } = open(regime, data, seed, steps)?;
    let device = Cpu::new(1).map_err(|error| Failure::at("cpu", error))?;
    // A method that skips for ever shows that by its score.
    let mut trainer = Trainer::new(device, parameters, optimizer, method.clone())?
        .with_options(TrainerOptions::new().with_skip_limit(0));
    let mut row = Row::new(regime, name, seed, steps);
    let start = Instant::now();
    for step in 0..steps {
        let conditions = regime.course.at(step, steps, seed);
        let outcome = learner.backward(&mut trainer, step, &conditions).and_then(|gradients| trainer.step(gradients));
        match outcome {
            Ok(outcome) => {
                row.skipped += u64::from(outcome.skipped.is_some());
                row.finite_skipped += u64::from(outcome.skipped.is_some() && learner.is_finite(&conditions));
                row.repeated += outcome.repeated.len() as u64;
            }
            Err(error) => {
                row.failure = Some(error.to_string());
                break;
            }
        }
        let first = trainer.sites().next().map(|site| site.alpha as f32);
        row.exponents.extend(first);
        each();
    }
    row.scale = matches!(method.scaling, Scaling::Loss(_)).then(|| trainer.loss_scale());
    row.seconds = start.elapsed().as_secs_f64();
    if row.failure.is_none() {
        row.score = Some(learner.score(&mut trainer)?).filter(|score| score.is_finite());
    }
    Ok(row)
}
