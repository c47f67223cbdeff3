//! Repeats: a batch that did not fit is run again, and no batch whose f32 gradients are finite is lost.
//!
//! An attempt that overflowed has changed nothing: the update is guarded on the device, and step counts, schedule and
//! running statistics wait for its outcome. The inputs of the last pass lie in places of their own, which no other
//! program uses and no batch sent ahead, so the step runs its program again by itself. Of several micro-batches only
//! the last one's are there; [`Trainer::step_with`] brings all of them again.

use crate::{
    Error, Operands, SiteReport,
    sites::Finished,
    train::{Gradients, Repeated, StepOutcome, Trainer, step::finish::StepScalars},
};
use gradscale_core::{
    backend::{Backend, Slot},
    stats::Stats,
};
use pollster::block_on;

/// An attempt at a step that was repeated: what its cast sites saw.
#[derive(Clone, Debug)]
pub struct Attempt {
    sites: Vec<(String, i32, Stats)>,
    operands: Vec<(String, Operands)>,
}

impl Attempt {
    /// Name, exponent in force after it, and row of each site.
    pub fn sites(&self) -> impl Iterator<Item = (&str, i32, &Stats)> {
        self.sites.iter().map(|(name, alpha, row)| (name.as_str(), *alpha, row))
    }

    /// What the paper's rules would have decided from.
    pub fn operands(&self) -> impl Iterator<Item = (&str, &Operands)> {
        self.operands.iter().map(|(name, operands)| (name.as_str(), operands))
    }
}

/// The attempts of a step that failed so far.
#[derive(Debug, Default)]
pub(in crate::train) struct Failed(Vec<(Slot, Repeated)>);

impl Failed {
    /// How many there are, beside those that were left to the caller to repeat.
    pub fn before(&self, left: u32) -> u32 {
        left.saturating_add(u32::try_from(self.0.len()).unwrap_or(u32::MAX))
    }
}

impl<B: Backend> Trainer<B> {
    /// Updates the parameters. If a cast site overflowed and the method repeats ([`crate::GradientScaling::repeats`]),
    /// the same batch is first run again, at exponents decided from its own values: the outcome says so. If a gradient
    /// is not finite whatever the exponents are, nothing changes.
    ///
    /// Gradients of several micro-batches cannot be had again here: the outcome is then a skip with
    /// [`crate::Cause::Again`], and the same micro-batches run again are taken. [`Trainer::step_with`] does that by
    /// itself.
    ///
    /// # Errors
    /// Gradients of another trainer or of a step that is over, too many skips in a row, a limit that is not positive,
    /// or the device's.
    pub fn step(&mut self, gradients: Gradients) -> Result<StepOutcome, Error<B::Error>> {
        block_on(self.non_blocking().step(gradients))
    }

    /// A step of several micro-batches, or one whose batch is not to stay on the device: `attempt` runs all of them
    /// and returns their gradients. It is called again, with the same seed of dropout, where a batch has to be
    /// repeated, and must then do the same.
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
        self.tickets.serial += 1;
        let has_norm = self.update(gradients).inspect_err(|_| {
            // Nothing was updated: whoever tries again finds the same seed of dropout.
            self.counters.seed = self.counters.seed.saturating_sub(gradients.micro.into());
        })?;
        let failed_before = failed.before(self.counters.failed);
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
                // What the last attempt saw of the batch says what would have fitted.
                let row = self.sites.row(slot).filter(|row| row.counts().non_finite() == 0);
                let fits = row.and_then(|row| Some(row.exponent().saturating_add(row.room_above()?)));
                let excess = fits.map(|fits| one.exponent.saturating_sub(fits)).filter(|&excess| excess > 0);
                Repeated { excess, ..one }
            });
            return Ok(Some(StepOutcome { repeated: repeated.collect(), ..outcome }));
        };
        let slot = gradients.order[blame.site];
        let (site, kind, exponent) = (self.sites.name(slot).to_owned(), blame.kind, blame.exponent);
        failed.0.push((slot, Repeated { site, kind, exponent, excess: None }));
        if self.observed.is_some() {
            let seen = |site: SiteReport<'_>| (site.name.to_owned(), site.alpha, *site.row);
            let operands = self.operands().map(|(name, operands)| (name.to_owned(), operands.clone())).collect();
            self.attempts.push(Attempt { sites: self.sites.reports().map(seen).collect(), operands });
        }
        Ok(None)
    }

    /// The attempts before the last of the last step, for traces; kept with [`Observation::Operands`](crate::Observation::Operands).
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }
}
