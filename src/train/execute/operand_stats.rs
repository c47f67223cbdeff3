//! What the paper's rules decide from, observed in every step whatever rule is in force: for traces that are replayed.

use crate::{
    graph::{Launch, Operation, Rule, Target},
    train::Trainer,
};
use gradscale_core::{
    backend::{Backend, Slot},
    model::terms::Terms,
    scaled::Scaled,
    solve,
    stats::{Detail, Stats},
};

/// Site that stored an incoming gradient, and the exponent in force there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The cast site; none for values that are not scaled.
    pub site: Option<String>,
    /// Its exponent in this step.
    pub exponent: i32,
}

/// Operands from which the paper's rules decide the exponent of one cast site, from the site's first call in a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operands {
    /// A product: the incoming gradient as it is stored, and the weights. None if all are zero or some not finite.
    Product {
        /// Site that stored the incoming gradient.
        from: Source,
        /// The gradient.
        dy: Option<solve::Operand>,
        /// The weights as they are multiplied.
        w: Option<solve::Operand>,
        /// Terms of one element.
        terms: Terms,
    },
    /// A cast after the backward pass of a softmax.
    Softmax {
        /// Site that stored the incoming gradient.
        from: Source,
        /// The f32 values at that exponent, with sums.
        row: Box<Stats>,
    },
    /// A sum: where each part comes from, and its largest magnitude as it is stored.
    Sum(Vec<(Source, f32)>),
    /// The same where parts do not meet: the gradient of what was split.
    Split(Vec<(Source, f32)>),
    /// Any other cast, whose rule needs no more than the site's own row.
    Cast(Source),
}

/// Additional statistics that steps collect, besides those of the method's decisions, for [`Trainer::observe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Minimum detail of the statistics rows, even if the rules need less: [`Detail::Full`] gives every row of
    /// [`Trainer::sites`] a histogram. Costs time.
    Rows(Detail),
    /// Operands from which the paper's rules would decide, for [`Trainer::operands`]. Nothing else changes by it. Launches
    /// run one by one and wait, which costs time.
    Operands,
}

impl<B: Backend> Trainer<B> {
    /// Observes more in every step from now on.
    ///
    /// ```
    /// use gradscale::{Cpu, Method, Observation, Parameters, Trainer, gradscale_core::stats::Detail, optim::Sgd};
    /// let mut trainer = Trainer::new(Cpu::new(1)?, Parameters::seeded(0), Sgd::new(0.5), Method::mixed())?;
    /// trainer.observe(Observation::Rows(Detail::Full));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe(&mut self, observation: Observation) {
        match observation {
            Observation::Rows(min) => self.settings.least = min,
            Observation::Operands => {
                self.observed.get_or_insert_default();
            }
        }
    }

    /// What the cast sites of the last step would have been decided from under the paper's rules, in backward order;
    /// nothing without [`Observation::Operands`].
    pub fn operands(&self) -> impl Iterator<Item = (&str, &Operands)> {
        let all = self.observed.iter().flatten();
        all.map(|(slot, operands)| (self.sites.name(*slot), operands))
    }

    /// Of a site's launch, before it runs.
    pub(in crate::train) async fn operands_of(
        &mut self, launch: &Launch, target: Target,
    ) -> Result<Operands, B::Error> {
        // Sums are wanted here; what the step's own rows hold stays as it is.
        let detail = std::mem::replace(&mut self.detail, Detail::Moments);
        let operands = self.look_at(launch, target).await;
        self.detail = detail;
        self.send(0..0)?;
        operands
    }

    async fn look_at(&mut self, launch: &Launch, target: Target) -> Result<Operands, B::Error> {
        Ok(match (launch.rule, &launch.operation) {
            (Rule::Product { dy, w, terms }, _) => {
                let (seen, weights) = self.observe_product(dy, w).await?;
                let operand = |row: &Stats| solve::Operand::from_row(row).ok();
                Operands::Product { from: self.source(dy.slot), dy: operand(&seen), w: operand(&weights), terms }
            }
            (Rule::Softmax, _) => {
                let (_, row) = self.probe_launch(launch, target, self.sites.exponent(target.from)).await?;
                Operands::Softmax { from: self.source(target.from), row: Box::new(row) }
            }
            (_, Operation::Sum { terms, .. }) => {
                let parts = self.observe_parts(launch).await?;
                let named = terms.iter().zip(parts).map(|(term, Scaled { data, .. })| (self.source(term.alpha), data));
                let named = named.collect();
                if launch.rule == Rule::Split { Operands::Split(named) } else { Operands::Sum(named) }
            }
            _ => Operands::Cast(self.source(target.from)),
        })
    }

    fn source(&self, slot: Slot) -> Source {
        let site = (slot != Slot::ONE).then(|| self.sites.name(slot).to_owned());
        Source { site, exponent: self.sites.exponent(slot) }
    }
}
