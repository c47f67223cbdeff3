//! The update: from gradients to new parameters, exponents and an outcome.

use super::{Gradients, Skipped, StepOutcome, Trainer, run::wait};
use crate::{
    Error,
    graph::{Fixed, Operation, Part, Target, Updated, Value, unary},
    optim::Optimizer,
    sites::{Attempt, Cause, Finished},
};
use gradscale_core::{
    amp::Level,
    backend::{Backend, DType, Slot},
    descriptor::{Optimizer as Descriptor, Unary},
    stats::{Convention, Detail, Stats},
    step::found_inf,
};
use std::ops::Range;

/// Numbers that come with the rows of an attempt.
#[derive(Clone, Debug)]
pub(super) struct Read {
    loss: f32,
    norm: Option<f32>,
    below_eps: Vec<String>,
}

impl<B: Backend> Trainer<B> {
    /// Launches the update, which does nothing on the device if a gradient is not finite; whether there is a norm.
    pub(super) fn update_all(&mut self, gradients: &Gradients) -> Result<bool, Error<B::Error>> {
        let clips = self.optimizer.clips_norm() || gradients.clip.is_some();
        let mut weights = gradients.contributes.clone();
        weights.sort_unstable();
        if clips {
            self.global_norm(&weights).map_err(Error::Device)?;
        }
        for group in 0..self.optimizer.group_count() {
            let members: Vec<usize> = weights.iter().copied().filter(|&id| self.groups[id] == group).collect();
            let mut descriptor = self.optimizer.descriptor(group).map_err(Error::Optimizer)?;
            if let Some(most) = gradients.clip {
                descriptor = descriptor.max_norm(most).map_err(Error::Optimizer)?;
            }
            if !members.is_empty() {
                self.update(&descriptor, self.guard(), &members, Part::Gradient, clips).map_err(Error::Device)?;
            }
        }
        self.update_statistics_of(&gradients.statistics, Part::Gradient, self.guard()).map_err(Error::Device)?;
        if self.level() == Level::O3 {
            for &id in &weights {
                self.convert(id, Fixed::part(id, Part::Half), self.master(id)).map_err(Error::Device)?;
            }
        }
        Ok(clips)
    }

    /// Reads the rows and decides what comes next: another attempt or another step.
    pub(super) fn finish(
        &mut self, gradients: &Gradients, clips: bool, (failed, repeatable): (u32, bool),
    ) -> Result<(Finished, Read), Error<B::Error>> {
        let mut rows = vec![Stats::new(Convention::FP16, 0, Detail::None); self.slots];
        let mut values = [0.0; 2];
        let scalars = [self.memory.get(self.fixed.loss()), self.memory.get(self.fixed.norm())];
        let count = if clips { 2 } else { 1 };
        if let Some(table) = &self.table {
            let all = 0..u16::try_from(self.slots).unwrap_or(u16::MAX);
            let collected = self.device.collect(table, all, &mut rows, &scalars[..count], &mut values[..count]);
            wait(collected).map_err(Error::Device)?;
        }
        let guard = self.guard();
        let parameters = &rows[usize::from(guard.start)..usize::from(guard.end)];
        let eps = self.optimizer.eps_in_force();
        let small = |id: &&usize| {
            let counts = rows[usize::from(self.known[**id].slot.0)].counts();
            counts.nonzero() != 0 && counts.amax < eps
        };
        let below_eps =
            gradients.contributes.iter().filter(small).map(|&id| self.definitions[id].name.clone()).collect();
        let found_inf = found_inf(parameters.iter().map(Stats::counts));
        let attempt = Attempt { found_inf, failed, repeatable, micro: gradients.micro };
        let finished = self.sites.finish(&rows, &gradients.order, attempt);
        Ok((finished, Read { loss: values[0], norm: clips.then_some(values[1]), below_eps }))
    }

    /// What an attempt came to that was the last.
    pub(super) fn outcome(
        &mut self, gradients: &Gradients, finished: Finished, read: Read,
    ) -> Result<StepOutcome, Error<B::Error>> {
        let skipped = match finished {
            Finished::Stepped | Finished::Repeat(_) => {
                self.taken += 1;
                self.in_a_row = 0;
                None
            }
            Finished::Skipped(blame, cause) => {
                self.in_a_row += 1;
                let site = blame.map(|blame| (self.sites.name(gradients.order[blame.site]).to_owned(), blame.kind));
                Some(Skipped { site, exponent: blame.map_or(0, |blame| blame.exponent), cause })
            }
        };
        self.failed = if let Finished::Skipped(_, Cause::Again) = finished {
            // What comes again has the same seed.
            self.seed = self.seed.saturating_sub(gradients.micro.into());
            self.failed + 1
        } else {
            0
        };
        if let Some(skipped) = skipped.as_ref().filter(|_| self.skip_limit != 0 && self.in_a_row >= self.skip_limit) {
            return Err(Error::Skips { in_a_row: self.in_a_row, last: skipped.to_string() });
        }
        let Read { loss, norm, below_eps } = read;
        Ok(StepOutcome { loss, skipped, repeated: Vec::new(), gradient_norm: norm, below_eps })
    }

    fn global_norm(&mut self, weights: &[usize]) -> Result<(), B::Error> {
        let gradients = weights.iter().map(|&id| Fixed::part(id, Part::Gradient)).collect();
        self.run_one(&Operation::GlobalNorm { gradients, norm: self.fixed.norm() })
    }

    /// New running statistics from those that wait in `source`: the mean over calls and micro-batches.
    pub(super) fn update_statistics_of(
        &mut self, statistics: &[(usize, u32)], source: Part, guard: Range<u16>,
    ) -> Result<(), B::Error> {
        let Ok(descriptor) = Optimizer::statistics() else { return Ok(()) };
        // Those with one call come as they are; others are divided first.
        let (single, several): (Vec<_>, Vec<_>) = statistics.iter().partition(|(_, calls)| *calls == 1);
        for &(id, calls) in &several {
            let mean = Fixed::part(id, Part::State0);
            if !self.memory.has(mean) {
                let buffer = self.device.alloc(DType::F32, self.definitions[id].shape.len())?;
                self.memory.put(mean, buffer);
            }
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let a = (1.0 / f64::from(calls)) as f32;
            let (op, x) = (Unary::Affine { a, b: 0.0 }, Fixed::part(id, source));
            let mean = Value::single(mean, self.definitions[id].shape.len());
            self.run_one(&unary(op, x, Target::keep(mean, Slot::ONE)))?;
        }
        for (members, source) in [(single, source), (several, Part::State0)] {
            let members: Vec<usize> = members.iter().map(|(id, _)| *id).collect();
            if !members.is_empty() {
                self.update(&descriptor, guard.clone(), &members, source, false)?;
            }
        }
        Ok(())
    }

    /// One launch over `members`.
    fn update(
        &mut self, descriptor: &Descriptor, guard: Range<u16>, members: &[usize], source: Part, clips: bool,
    ) -> Result<(), B::Error> {
        let weights = descriptor.states() > 0;
        let mut there = |id: usize, part: Part| Some(Fixed::part(id, part)).filter(|&buf| self.memory.has(buf));
        let updated = |&id: &usize| Updated {
            master: Fixed::part(id, Part::Master),
            grad: Fixed::part(id, source),
            state: [Part::State0, Part::State1].map(|part| there(id, part).filter(|_| weights)),
            half: there(id, Part::Half),
        };
        let parameters = members.iter().map(updated).collect();
        let norm = clips.then(|| self.fixed.norm());
        self.run_one(&Operation::Optimize { p: *descriptor, table: (), guard, norm, parameters })
    }
}
