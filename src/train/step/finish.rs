//! The end of a step: reading the statistics rows, decisions and the outcome.

use crate::{
    Error,
    sites::{Attempt, Cause, Finished},
    train::{ExponentsAfter, Gradients, Skipped, StepOutcome, Trainer, UnusableLoss},
};
use gradscale_core::{
    backend::{Backend, UpdateGuard},
    stats::{Convention, Detail, Stats},
    step_outcome::{Outcome, found_inf},
};

/// Rows and scalars that the host reads from the device after an attempt at a step.
#[derive(Debug)]
pub(in crate::train) struct StepReadback {
    /// Statistics row of every slot, indexed by slot.
    pub rows: Vec<Stats>,
    pub loss: f32,
    /// Norm of all gradients, if gradients are clipped by it.
    pub norm: Option<f32>,
}

/// Numbers of an attempt that its outcome reports.
#[derive(Clone, Debug)]
pub(in crate::train) struct StepScalars {
    loss: f32,
    norm: Option<f32>,
    below_eps: Vec<String>,
}

impl<B: Backend> Trainer<B> {
    /// Reads all rows, the loss, and the norm of all gradients if there is one.
    pub(in crate::train) async fn collect(&mut self, has_norm: bool) -> Result<StepReadback, Error<B::Error>> {
        let all = self.exec.rows();
        // All rows are overwritten. They are reused because a new list per step would cost a megabyte of page faults.
        let mut rows = std::mem::take(&mut self.rows);
        rows.resize(all.len(), Stats::new(Convention::FP16, 0, Detail::None));
        let (fixed, mut values) = (self.parameters.fixed(), [0.0; 2]);
        let count = if has_norm { 2 } else { 1 };
        let scalars = &[fixed.loss(), fixed.norm()][..count];
        self.exec.collect(all, &mut rows, scalars, &mut values[..count]).await.map_err(Error::Device)?;
        let [loss, norm] = values;
        Ok(StepReadback { rows, loss, norm: has_norm.then_some(norm) })
    }

    /// Returns the guard of an update from these gradients, in an attempt that `failed` others came before.
    pub(in crate::train) fn update_guard(&self, gradients: &Gradients, failed: u32) -> UpdateGuard {
        let activations = self.sites.guarded_activations(&gradients.order, failed);
        UpdateGuard { gradients: self.parameters.slots(), activations }
    }

    /// Returns true if a gradient of some parameter is not finite.
    fn found_inf(&self, rows: &[Stats]) -> bool {
        let slots = self.parameters.slots();
        found_inf(rows[usize::from(slots.start)..usize::from(slots.end)].iter().map(Stats::counts))
    }

    /// Decides from the rows of an attempt whether the step was taken, is skipped or is retried, and decides the next
    /// exponents. `failed` attempts came before it; `is_repeatable` is true if its batch can be run again.
    pub(in crate::train) fn decide(
        &mut self, gradients: &Gradients, readback: &StepReadback, failed: u32, is_repeatable: bool,
    ) -> (Finished, StepScalars) {
        let &StepReadback { ref rows, loss, norm } = readback;
        let eps = self.optimizer.eps_in_force();
        let small = |id: &&usize| {
            let counts = rows[usize::from(self.parameters.infos[**id].slot.0)].counts();
            counts.nonzero() != 0 && counts.amax < eps
        };
        let below_eps =
            gradients.contributes.iter().filter(small).map(|&id| self.parameters.all[id].name.clone()).collect();
        let (found_inf, micro) = (self.found_inf(rows), gradients.micro);
        let attempt = Attempt { found_inf, failed, repeatable: is_repeatable, micro };
        (self.sites.finish(rows, &gradients.order, attempt), StepScalars { loss, norm, below_eps })
    }

    /// Describes a loss that is infinite or NaN. Called after the sites have processed the batch's rows.
    fn unusable(&self, value: f32) -> UnusableLoss {
        let (before, after) = (self.sites.loss_scale_before(), self.sites.loss_scale());
        let exponents = if before != after {
            ExponentsAfter::LossScale { before, after }
        } else if self.sites.moved() {
            ExponentsAfter::Sites
        } else {
            ExponentsAfter::Kept
        };
        UnusableLoss { value, exponents, sample: None }
    }

    /// Returns the outcome of the last attempt at a step.
    pub(in crate::train) fn outcome(
        &mut self, gradients: &Gradients, finished: Finished, read: StepScalars,
    ) -> Result<StepOutcome, Error<B::Error>> {
        let skipped = match finished {
            Finished::Stepped | Finished::Repeat(_) => {
                self.counters.taken += 1;
                for (group, steps) in self.steps.iter_mut().enumerate() {
                    // A group without weights cannot be counted by its own, so it counts every step.
                    let steps_now = |id: usize| self.parameters.groups[id] == group;
                    let takes_part = gradients.contributes.iter().any(|&id| steps_now(id));
                    *steps += u64::from(takes_part || !self.parameters.weights().any(steps_now));
                }
                None
            }
            Finished::Skipped(blame, cause) => {
                let site = blame.map(|blame| (self.sites.name(gradients.order[blame.site]).to_owned(), blame.kind));
                let loss = (!read.loss.is_finite()).then(|| self.unusable(read.loss));
                Some(Skipped { site, exponent: blame.map_or(0, |blame| blame.exponent), cause, loss })
            }
        };
        self.counters.failed = if let Finished::Skipped(_, Cause::Again) = finished {
            // The retry must have the same dropout seed.
            self.counters.seed = self.counters.seed.saturating_sub(gradients.micro.into());
            self.counters.failed + 1
        } else {
            0
        };
        let outcome = match finished {
            Finished::Stepped | Finished::Repeat(_) => Outcome::Stepped,
            Finished::Skipped(blame, _) => Outcome::Skipped(blame),
        };
        if let (Err(limit), Some(skipped)) = (self.counters.skips.update(outcome), &skipped) {
            return Err(Error::Skips { in_a_row: limit.in_a_row, last: skipped.to_string() });
        }
        let StepScalars { loss, norm, below_eps } = read;
        Ok(StepOutcome { loss, skipped, repeated: Vec::new(), gradient_norm: norm, below_eps })
    }
}
