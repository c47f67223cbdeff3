//! Stores in formats of 8 bits: a launch that stores to a site of such a format stores f32, and a second launch rounds.
//!
//! Kernels need no formats this way, and the values are rounded once, as by a fused store. The f32 values have the
//! exponent from which the fused store would have started.

use super::{Compiler, Launch, Operation, ScaleRule, StoreSpec, launch::round};
use crate::{TraceError, sites::Derivation};
use gradscale_core::backend::{DType, Slot};
use std::mem;

impl Compiler<'_, '_> {
    /// Splits each launch whose stores have another format than FP16 into one that stores f32 and those that round.
    /// Positions between launches move with them.
    pub(super) fn round_stores(&mut self) -> Result<(), TraceError> {
        let (launches, origins) = (mem::take(&mut self.launches), mem::take(&mut self.origins));
        let mut starts = Vec::with_capacity(launches.len() + 1);
        for (launch, origin) in launches.into_iter().zip(origins) {
            starts.push(self.launches.len());
            self.round_stores_of(launch)?;
            self.origins.resize(self.launches.len(), origin);
        }
        starts.push(self.launches.len());
        self.stats_syncs.iter_mut().for_each(|sync| sync.before = starts[sync.before]);
        Ok(())
    }

    fn round_stores_of(&mut self, launch: Launch) -> Result<(), TraceError> {
        if !launch.has_format() {
            self.launches.push(launch);
            return Ok(());
        }
        let of_terms = self.common_slot_of_terms(&launch)?;
        let mut rounds: Vec<Launch> = Vec::new();
        let operation = launch.with_stores(|y| {
            if !y.has_format() {
                return y;
            }
            let single = self.new_buffer(DType::F32, y.y.len);
            let from = of_terms.unwrap_or(y.from);
            rounds.push(round(single.buf, StoreSpec { from, ..y }).into());
            StoreSpec::passthrough(single, from)
        });
        // The rule decides the exponent of the first store.
        let decides = launch.site().is_some_and(StoreSpec::has_format);
        match rounds.first_mut() {
            Some(first) if decides => first.rule = launch.rule,
            Some(_) | None => {}
        }
        let rule = if decides { ScaleRule::None } else { launch.rule };
        self.launches.push(Launch::new(operation, rule));
        self.launches.append(&mut rounds);
        Ok(())
    }

    /// Returns the slot of the smallest exponent of a sum's terms. There each term fits into f32, however different their
    /// exponents are.
    fn common_slot_of_terms(&mut self, launch: &Launch) -> Result<Option<Slot>, TraceError> {
        let Operation::Sum { terms, .. } = &launch.operation else { return Ok(None) };
        let mut slots = terms.iter().map(|term| term.alpha);
        let Some(first) = slots.next() else { return Ok(None) };
        slots.try_fold(first, |all, slot| self.shared.sites.derive(Derivation::Common(all, slot))).map(Some)
    }
}
