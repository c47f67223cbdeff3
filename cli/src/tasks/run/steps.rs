//! A step of a training: whole, in parts, or of two networks in turn.

use super::{Taken, Task, Training};
use crate::Failure;
use gradscale::{Attempt, Operands, StepOutcome, core::backend::Backend};
use std::time::{Duration, Instant};

/// How steps are cut into parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub parts: u32,
    /// Images of a part.
    pub batch: u64,
}

/// What the first of two networks that train in turn has observed, before the second one's step takes its place.
#[derive(Debug, Default)]
pub(super) struct FirstTurn {
    pub operands: Vec<(String, Operands)>,
    pub attempts: Vec<Attempt>,
}

impl<B: Backend<Error: 'static>, T: Task> Training<B, T> {
    /// One step, of whose parts this rank reads its own.
    pub(super) fn step_in_parts(&mut self, Cut { parts, batch }: Cut) -> Result<StepOutcome, Failure> {
        let Self { task, trainer, position, taken, fetched, .. } = self;
        let (first, mut reading) = (*position, Duration::ZERO);
        let outcome = trainer.step_parts(parts, |trainer, part| {
            let start = Instant::now();
            task.seek(first + u64::from(part) * batch);
            let part = task.prefetch(trainer)?;
            *taken = part.sizes();
            reading += start.elapsed();
            Ok::<_, Failure>(task.backward(trainer, part)?)
        })?;
        *fetched = reading;
        *position = first + u64::from(parts) * batch;
        task.seek(*position);
        Ok(outcome)
    }

    /// One step; the next batch is sent ahead in it.
    pub(super) fn step_whole(&mut self) -> Result<StepOutcome, Failure> {
        let batch = match self.ahead.take() {
            Some(batch) => batch,
            None => self.task.prefetch(&mut self.trainer)?,
        };
        (self.position, self.taken) = (self.task.position(), batch.sizes());
        let gradients = self.task.backward(&mut self.trainer, batch)?;
        // While the device is at work.
        let start = Instant::now();
        self.ahead = Some(self.task.prefetch(&mut self.trainer)?);
        self.fetched = start.elapsed();
        let outcome = self.trainer.step(gradients)?;
        self.task.stepped(&self.trainer)?;
        self.second(outcome)
    }

    /// The step of the second network, if there is one, as a part of that of the first.
    fn second(&mut self, first: StepOutcome) -> Result<StepOutcome, Failure> {
        if self.task.losses().is_empty() {
            return Ok(first);
        }
        self.first_turn = FirstTurn {
            operands: self.trainer.operands().map(|(name, operands)| (name.to_owned(), operands.clone())).collect(),
            attempts: self.trainer.attempts().to_vec(),
        };
        let Some(gradients) = self.task.second(&mut self.trainer, self.position) else { return Ok(first) };
        let second = self.trainer.step(gradients?)?;
        self.losses = vec![first.loss, second.loss];
        Ok(StepOutcome {
            loss: first.loss + second.loss,
            skipped: first.skipped.or(second.skipped),
            repeated: [first.repeated, second.repeated].concat(),
            gradient_norm: first.gradient_norm.or(second.gradient_norm),
            below_eps: [first.below_eps, second.below_eps].concat(),
        })
    }
}
