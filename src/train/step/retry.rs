//! Retry of a batch that overflowed, so that no batch with finite f32 gradients is lost. A failed attempt changes no
//! parameter and no optimizer state, because the update is guarded on the device. Step counts, schedule and running
//! statistics wait for the outcome.
//!
//! The inputs of the last pass have buffers of their own, which no other program and
//! no prefetched batch uses. Therefore the step can run its program again by itself. With several micro-batches only
//! the inputs of the last one are on the device; [`Trainer::step_with`] uploads all of them again.

use crate::{
    Error, Operands, SiteReport,
    sites::{Finished, SlotKind},
    train::{Gradients, Repeated, StepOutcome, Trainer, step::finish::StepScalars},
};
use gradscale_core::{
    backend::{Backend, Slot},
    stats::Stats,
};
use pollster::block_on;

/// Failed attempt at a step that was repeated, with the statistics of its cast sites.
#[derive(Clone, Debug)]
pub struct Attempt {
    sites: Vec<(String, i32, Stats)>,
    operands: Vec<(String, Operands)>,
    activation: Option<(String, i32)>,
}

impl Attempt {
    /// Returns name, exponent after the attempt, and statistics row of each site.
    pub fn sites(&self) -> impl Iterator<Item = (&str, i32, &Stats)> {
        self.sites.iter().map(|(name, alpha, row)| (name.as_str(), *alpha, row))
    }

    /// Returns name and exponent of the forward store that overflowed, if the attempt failed because of an activation.
    pub fn activation(&self) -> Option<(&str, i32)> {
        self.activation.as_ref().map(|(name, exponent)| (name.as_str(), *exponent))
    }

    /// Returns the operands from which the paper's rules would have decided, by site.
    pub fn operands(&self) -> impl Iterator<Item = (&str, &Operands)> {
        self.operands.iter().map(|(name, operands)| (name.as_str(), operands))
    }
}

/// Failed attempts of the current step, each with the slot of the site that overflowed.
#[derive(Debug, Default)]
pub(in crate::train) struct Failed(Vec<(Slot, Repeated)>);

impl Failed {
    /// Returns the number of failed attempts, plus `left` that the caller has to retry.
    pub fn before(&self, left: u32) -> u32 {
        left.saturating_add(u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

impl<B: Backend> Trainer<B> {
    /// Updates the parameters. If a cast site overflowed and the method repeats ([`crate::GradientScaling::repeats`]),
    /// the same batch runs again first, at exponents decided from its own values, and the outcome reports it. If a
    /// gradient is not finite at any exponent, nothing changes.
    ///
    /// Gradients of several micro-batches cannot be computed again here. The outcome is then a skip with
    /// [`crate::Cause::Again`], and the caller runs the same micro-batches again. [`Trainer::step_with`] does that by
    /// itself.
    ///
    /// # Errors
    /// Gradients of another trainer or of an earlier step, too many consecutive skips, a clip limit that is not
    /// positive, or the device's.
    pub fn step(&mut self, gradients: Gradients) -> Result<StepOutcome, Error<B::Error>> {
        block_on(self.non_blocking().step(gradients))
    }

    /// Takes a step of several micro-batches, or of one whose batch is not kept on the device. `attempt` runs all
    /// passes and returns their gradients. It is called again with the same dropout seed if the batch has to be
    /// repeated, and must then compute the same.
    ///
    /// ```
    /// # use gradscale::{Input, Cpu, Method, Parameters, Pass, Trainer, nn::{Linear, Module}, optim::Sgd};
    /// # let mut parameters = Parameters::seeded(0);
    /// # let net = Linear::new(&mut parameters.at("net"), 2, 2);
    /// # let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?;
    /// let parts = [[1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 2.0, 0.0]];
    /// let batch = |i: usize| [Input::f32([2, 2], &parts[i]), Input::u8([2], &[0, 1])];
    /// let outcome = trainer.step_with(|trainer| {
    ///     let first = trainer.backward(batch(0), |[x, labels]| net.forward(x).cross_entropy(labels) * 0.5)?;
    ///     let second = Pass::new(batch(1)).accumulate(first);
    ///     trainer.backward(second, |[x, labels]| net.forward(x).cross_entropy(labels) * 0.5)
    /// })?;
    /// assert!(outcome.skipped.is_none() && outcome.repeated.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `attempt` and of [`Trainer::step`].
    pub fn step_with(
        &mut self, mut attempt: impl FnMut(&mut Self) -> Result<Gradients, Error<B::Error>>,
    ) -> Result<StepOutcome, Error<B::Error>> {
        block_on(self.non_blocking().step_with(async |trainer| attempt(trainer)))
    }

    /// Ends an attempt at a step: updates, collects, decides. Returns the outcome, unless the batch has to be run again.
    pub(in crate::train) async fn attempt(
        &mut self, gradients: &Gradients, is_repeatable: bool, failed: &mut Failed,
    ) -> Result<Option<StepOutcome>, Error<B::Error>> {
        self.generations.gradients += 1;
        let failed_before = failed.before(self.counters.failed);
        let guard = self.update_guard(gradients, failed_before);
        let has_norm = self.update(gradients, guard).inspect_err(|_| {
            // Nothing was updated, so a retry must have the same dropout seed.
            self.counters.seed = self.counters.seed.saturating_sub(gradients.micro.into());
        })?;
        let readback = self.collect(has_norm).await?;
        let (finished, scalars) = self.decide(gradients, &readback, failed_before, is_repeatable);
        self.rows = readback.rows;
        self.conclude(gradients, finished, scalars, failed)
    }

    /// Concludes an attempt. Returns the outcome, unless the batch has to be run again.
    pub(in crate::train) fn conclude(
        &mut self, gradients: &Gradients, finished: Finished, scalars: StepScalars, failed: &mut Failed,
    ) -> Result<Option<StepOutcome>, Error<B::Error>> {
        let Finished::Repeat(blame) = finished else {
            let outcome = self.outcome(gradients, finished, scalars)?;
            let repeated = failed.0.drain(..).map(|(slot, one)| {
                // The row of the last attempt shows which exponent would have fitted.
                let row = self.sites.row(slot).filter(|row| row.counts().non_finite() == 0);
                let fits = row.and_then(|row| Some(row.exponent().saturating_add(row.headroom_above()?)));
                let excess = fits.map(|fits| one.exponent.saturating_sub(fits)).filter(|&excess| excess > 0);
                Repeated { excess, ..one }
            });
            return Ok(Some(StepOutcome { repeated: repeated.collect(), ..outcome }));
        };
        let slot = gradients.order[blame.site];
        let (site, kind, exponent) = (self.sites.name(slot).to_owned(), blame.kind, blame.exponent);
        if self.observed.is_some() {
            let is_activation = matches!(self.sites.kind(slot), SlotKind::Forward | SlotKind::Weight);
            let activation = is_activation.then(|| (site.clone(), exponent));
            let seen = |site: SiteReport<'_>| (site.name.to_owned(), site.alpha, *site.row);
            let operands = self.operands().map(|(name, operands)| (name.to_owned(), operands.clone())).collect();
            self.attempts.push(Attempt { sites: self.sites.reports().map(seen).collect(), operands, activation });
        }
        failed.0.push((slot, Repeated { site, kind, exponent, excess: None }));
        Ok(None)
    }

    /// Returns the failed attempts of the last step, for traces; kept with
    /// [`Observation::Operands`](crate::Observation::Operands).
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}
