//! Training step: of a whole batch, of micro-batches, or of two networks alternately (GAN).

use super::{BatchInfo, Training, TrainingTask};
use crate::Failure;
use gradscale::{Attempt, Operands, StepOutcome, gradscale_core::backend::Backend};
use std::time::{Duration, Instant};

/// Division of a step's samples into micro-batches.
#[derive(Clone, Copy, Debug)]
pub(super) struct MicroBatching {
    pub parts: u32,
    /// Number of samples in one micro-batch.
    pub batch: u64,
}

/// Statistics of the first of two networks, saved before the step of the second overwrites them.
#[derive(Debug, Default)]
pub(super) struct FirstNetworkTurn {
    pub operands: Vec<(String, Operands)>,
    pub attempts: Vec<Attempt>,
}

impl<B: Backend<Error: 'static>, T: TrainingTask> Training<B, T> {
    /// Runs one step over this rank's micro-batches.
    pub(super) fn step_in_parts(
        &mut self, MicroBatching { parts, batch }: MicroBatching,
    ) -> Result<StepOutcome, Failure> {
        let Self { task, trainer, position, taken, fetched, .. } = self;
        let (first, mut reading) = (*position, Duration::ZERO);
        let outcome = trainer.step_micro_batches(parts, |trainer, part| {
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

    /// Runs one step over a whole batch and prefetches the next.
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
        self.task.after_step(&self.trainer)?;
        self.step_second_network(outcome)
    }

    /// Searches for the samples of a step that was skipped because of its loss, and sets the first of them in its outcome.
    /// The samples of the step begin at position `start`. All ranks search all micro-batches, because each has all data.
    pub(super) fn with_sample(&mut self, start: u64, outcome: StepOutcome) -> StepOutcome {
        self.unusable = None;
        let Some(skipped) = outcome.skipped.as_ref().filter(|skipped| skipped.loss.is_some()) else { return outcome };
        let starts = match self.cut {
            Some(MicroBatching { parts, batch }) => (0..parts).map(|part| start + u64::from(part) * batch).collect(),
            None => vec![start],
        };
        let (position, mut samples) = (self.task.position(), Vec::new());
        for start in starts {
            self.task.seek(start);
            samples.extend(self.task.draw_samples());
        }
        self.task.seek(position);
        self.unusable = self.search.find(&self.task, &mut self.trainer, &samples);
        let Some(found) = &self.unusable else { return outcome };
        let skipped = Some(skipped.clone().with_sample(found.first()));
        StepOutcome { skipped, ..outcome }
    }

    /// Runs the step of the second network, if there is one, as a part of the first network's step.
    fn step_second_network(&mut self, first: StepOutcome) -> Result<StepOutcome, Failure> {
        if self.task.losses().is_empty() {
            return Ok(first);
        }
        self.first_turn = FirstNetworkTurn {
            operands: self.trainer.operands().map(|(name, operands)| (name.to_owned(), operands.clone())).collect(),
            attempts: self.trainer.attempts().to_vec(),
        };
        let Some(gradients) = self.task.second_network_backward(&mut self.trainer, self.position) else {
            return Ok(first);
        };
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
