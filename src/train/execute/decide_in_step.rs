//! Decisions inside the step, before the store.
//!
//! The operator stores to f32 scratch at its incoming exponent, and its statistics go to the slot PROBE. The host reads
//! that row and decides. Then the scratch is stored at the new exponent. The kernels and bits are those of the fused
//! store.

use crate::{
    Preset, Scaling,
    graph::{BufferId, Gradient, Launch, Operation, ScaleRule, StoreSpec, Value, cast},
    sites::SlotKind,
    train::Trainer,
};
use gradscale_core::{
    backend::{Backend, Slot},
    scaled::Scaled,
    solve::{NoDecision, Operand},
    stats::{Convention, Detail, Stats},
};

const PROBE: std::ops::Range<u16> = Slot::PROBE.0..Slot::PROBE.0 + 1;

impl<B: Backend> Trainer<B> {
    /// Runs the first launch of a step that stores to a site: observes its operands, and decides an exponent if the
    /// site has no usable one.
    pub(in crate::train) async fn run_site(&mut self, launch: &Launch, target: StoreSpec) -> Result<(), B::Error> {
        if self.observed.is_some() && self.sites.kind(target.to) == SlotKind::Site {
            let operands = self.operands_of(launch, target).await?;
            self.observed.get_or_insert_default().push((target.to, operands));
        }
        if !self.sites.at_once(target.to) {
            return self.exec.run(&launch.operation);
        }
        let Scaling::Gradient(scaling) = self.sites.scaling() else { return self.exec.run(&launch.operation) };
        let preset = scaling.preset;
        let incoming = self.incoming(launch, target);
        match (preset, launch.rule) {
            (Preset::Paper(_) | Preset::Authors(_), ScaleRule::FromGemmOperands { dy, w, terms }) => {
                let (seen, weights) = self.observe_product(dy, w).await?;
                let verdict = Operand::from_row(&seen).and_then(|seen| {
                    let weights = Operand::from_row(&weights)?;
                    match preset {
                        Preset::Paper(paper) => paper.product(&seen, &weights, terms),
                        Preset::Authors(authors) => authors.product(&seen, &weights, terms, incoming),
                        Preset::Exact | Preset::Amax => Err(NoDecision::Detail),
                    }
                });
                self.sites.decide(target.to, verdict, incoming, incoming);
                self.upload_control(0..0)?;
                self.exec.run(&launch.operation)
            }
            _ => self.run_probing(launch, preset, target, incoming).await,
        }
    }

    /// Returns the exponent of the incoming values; for a sum, the largest exponent of its terms.
    fn incoming(&self, launch: &Launch, target: StoreSpec) -> i32 {
        match &launch.operation {
            Operation::Sum { terms, .. } => terms.iter().map(|term| self.sites.exponent(term.alpha)).max().unwrap_or(0),
            _ => self.sites.exponent(target.from),
        }
    }

    async fn run_probing(
        &mut self, launch: &Launch, preset: Preset, target: StoreSpec, incoming: i32,
    ) -> Result<(), B::Error> {
        if let Operation::Round { .. } = launch.operation {
            // Only rules that decide from rows have other formats than FP16. The values stay in memory, so they need not be
            // stored from the scratch, where they are rounded.
            let (_, row) = self.probe_launch(launch, target, incoming).await?;
            self.sites.decide_from(target.to, &row, incoming);
            self.upload_control(0..0)?;
            return self.exec.run(&launch.operation);
        }
        let parts = if preset.decides_from_rows() { Vec::new() } else { self.observe_parts(launch).await? };
        let (mut scratch, mut row) = self.probe_launch(launch, target, incoming).await?;
        if let (Operation::Sum { terms, .. }, true) = (&launch.operation, preset.decides_from_rows())
            && row.counts().non_finite() != 0
        {
            // The exponents of the terms are very different. At the largest, terms with the smallest exponent may
            // exceed f32. At the smallest all fit, and the bits lost from the other terms are negligible.
            let least = terms.iter().map(|term| self.sites.exponent(term.alpha)).min().unwrap_or(incoming);
            (scratch, row) = self.probe_launch(launch, target, least).await?;
        }
        let verdict = match (preset, launch.rule) {
            (Preset::Exact | Preset::Amax, _) => self.sites.exact(target.to, &row),
            (Preset::Paper(paper), ScaleRule::FromSoftmax) => paper.softmax_cast(&row),
            (Preset::Authors(authors), ScaleRule::FromSoftmax) => authors.softmax_cast(&row),
            (Preset::Paper(paper), ScaleRule::FromSum | ScaleRule::FromConcat) => paper.branch(&parts, &row),
            (Preset::Authors(authors), ScaleRule::FromSum) => authors.branch(&parts, &row),
            (Preset::Authors(authors), ScaleRule::FromConcat) => authors.split(&parts, &row),
            (Preset::Paper(paper), ScaleRule::None | ScaleRule::FromValues | ScaleRule::FromGemmOperands { .. }) => {
                paper.other_cast(&row)
            }
            (
                Preset::Authors(authors),
                ScaleRule::None | ScaleRule::FromValues | ScaleRule::FromGemmOperands { .. },
            ) => authors.other_cast(&row),
        };
        self.sites.decide(target.to, verdict, row.exponent(), incoming);
        self.upload_control(0..0)?;
        let store = StoreSpec { from: Slot::PROBE, ..target };
        self.exec.run(&cast(scratch, store))
    }

    /// Runs a launch with its first target replaced by f32 scratch, at the incoming exponent. Returns the scratch and
    /// its row.
    pub(in crate::train) async fn probe_launch(
        &mut self, launch: &Launch, target: StoreSpec, incoming: i32,
    ) -> Result<(BufferId, Stats), B::Error> {
        let scratch = Value::f32(self.exec.scratch(target.y.len)?, target.y.len);
        self.sites.set_probe(incoming);
        self.upload_control(PROBE)?;
        let probing = StoreSpec { y: scratch, to: Slot::PROBE, detail: Detail::Moments, ..target };
        self.exec.run(&launch.stored_at(probing).operation)?;
        Ok((scratch.buf, self.probe().await?))
    }

    /// Returns the statistics rows of both operands of a product.
    pub(in crate::train) async fn observe_product(
        &mut self, dy: Gradient, w: Value,
    ) -> Result<(Stats, Stats), B::Error> {
        Ok((self.observe_values(dy.value, dy.slot).await?, self.observe_values(w, Slot::ONE).await?))
    }

    /// Returns the largest magnitude of each term of a sum, with the term's exponent.
    pub(in crate::train) async fn observe_parts(&mut self, launch: &Launch) -> Result<Vec<Scaled<f32>>, B::Error> {
        let Operation::Sum { terms, y, .. } = &launch.operation else { return Ok(Vec::new()) };
        let mut parts = Vec::new();
        for &Scaled { data: buf, alpha: slot } in terms {
            let row = self.observe_values(Value { buf, ..y.y }, slot).await?;
            parts.push(Scaled::new(row.counts().amax, self.sites.exponent(slot)));
        }
        Ok(parts)
    }

    /// Returns the statistics row of a buffer's values as they are stored.
    async fn observe_values(&mut self, value: Value, slot: Slot) -> Result<Stats, B::Error> {
        self.sites.set_probe(self.sites.exponent(slot));
        self.upload_control(PROBE)?;
        let scratch = Value::f32(self.exec.scratch(value.len)?, value.len);
        let target = StoreSpec { detail: Detail::Moments, ..StoreSpec::rescaled(scratch, slot, Slot::PROBE) };
        self.exec.run(&cast(value.buf, target))?;
        self.probe().await
    }

    async fn probe(&mut self) -> Result<Stats, B::Error> {
        let mut row = [Stats::new(Convention::FP16, 0, Detail::None)];
        self.exec.collect(PROBE, &mut row, &[], &mut []).await?;
        Ok(row[0])
    }
}
