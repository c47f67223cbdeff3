//! Operands of the paper's rules, observed in every step whatever rule is in force, because traces are replayed with
//! them.

use crate::{
    graph::{Launch, Operation, ScaleRule, StoreSpec},
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
    /// Name of the cast site; `None` for values that are not scaled.
    pub site: Option<String>,
    /// Exponent of that site in this step.
    pub exponent: i32,
}

/// Operands from which the paper's rules decide the exponent of one cast site, from the site's first call in a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Operands {
    /// A product of the incoming gradient, as it is stored, and the weights. An operand is `None` if all its values are
    /// zero or some are not finite.
    Product {
        /// Site that stored the incoming gradient.
        from: Source,
        /// Statistics of the incoming gradient.
        dy: Option<solve::Operand>,
        /// Statistics of the weights, in the precision in which they are multiplied.
        w: Option<solve::Operand>,
        /// Number of terms that are summed to one element of the product.
        terms: Terms,
    },
    /// A cast after the backward pass of a softmax.
    Softmax {
        /// Site that stored the incoming gradient.
        from: Source,
        /// Statistics of the f32 values at the exponent of `from`, with their moments.
        row: Box<Stats>,
    },
    /// A sum: the source of each term, and the term's largest magnitude as it is stored.
    Sum(Vec<(Source, f32)>),
    /// The gradient of a split tensor, whose parts do not overlap: the source and the largest magnitude of each part.
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
    /// Operands from which the paper's rules would decide, for [`Trainer::operands`]. Decisions do not change. Launches
    /// run one by one, and the host waits for each, which costs time.
    Operands,
}

impl<B: Backend> Trainer<B> {
    /// Collects additional statistics in every later step.
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

    /// Returns the operands from which the paper's rules would have decided at the cast sites of the last step, in
    /// backward order. Empty without [`Observation::Operands`].
    pub fn operands(&self) -> impl Iterator<Item = (&str, &Operands)> {
        let all = self.observed.iter().flatten();
        all.map(|(slot, operands)| (self.sites.name(*slot), operands))
    }

    /// Returns the operands of a launch that stores to a site, before the launch runs.
    pub(in crate::train) async fn operands_of(
        &mut self, launch: &Launch, target: StoreSpec,
    ) -> Result<Operands, B::Error> {
        // These rows need moments; the detail of the step's own rows must not change.
        let detail = std::mem::replace(&mut self.detail, Detail::Moments);
        let operands = self.look_at(launch, target).await;
        self.detail = detail;
        self.upload_control(0..0)?;
        operands
    }

    async fn look_at(&mut self, launch: &Launch, target: StoreSpec) -> Result<Operands, B::Error> {
        Ok(match (launch.rule, &launch.operation) {
            (ScaleRule::FromGemmOperands { dy, w, terms }, _) => {
                let (seen, weights) = self.observe_product(dy, w).await?;
                let operand = |row: &Stats| solve::Operand::from_row(row).ok();
                Operands::Product { from: self.source(dy.slot), dy: operand(&seen), w: operand(&weights), terms }
            }
            (ScaleRule::FromSoftmax, _) => {
                let (_, row) = self.probe_launch(launch, target, self.sites.exponent(target.from)).await?;
                Operands::Softmax { from: self.source(target.from), row: Box::new(row) }
            }
            (_, Operation::Sum { terms, .. }) => {
                let parts = self.observe_parts(launch).await?;
                let named = terms.iter().zip(parts).map(|(term, Scaled { data, .. })| (self.source(term.alpha), data));
                let named = named.collect();
                if launch.rule == ScaleRule::FromConcat { Operands::Split(named) } else { Operands::Sum(named) }
            }
            _ => Operands::Cast(self.source(target.from)),
        })
    }

    fn source(&self, slot: Slot) -> Source {
        let gradient = self.sites.gradient_slot(slot);
        let site = (gradient != Slot::ONE).then(|| self.sites.name(gradient).to_owned());
        Source { site, exponent: self.sites.exponent(slot) }
    }
}
