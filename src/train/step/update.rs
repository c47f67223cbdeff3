//! Parameter update as a list of operations, which is recorded and replayed like a program.

use crate::{
    Error,
    graph::{Fixed, Operation, ParamTensor, ParamUpdate, STATES, StoreSpec, Value, unary},
    optim::Optimizer,
    train::{Gradients, Trainer, converted, elements},
};
use gradscale_core::{
    amp::Level,
    backend::{Backend, Slot, UpdateGuard},
    ops::{Optimizer as Descriptor, Unary},
};

/// Maximum number of cached updates. There is one for each set of parameters that a loss depends on, for example two in
/// adversarial training. The limit bounds memory if a network uses ever new sets.
const MAX_UPDATE_LISTS: usize = 64;

/// Parameters and statistics that an update list writes; the key of its cache.
#[derive(Debug)]
pub(in crate::train) struct Update {
    /// Ids of the weights, in the order of their gradients.
    contributes: Vec<usize>,
    /// Running statistics, each with its number of calls.
    statistics: Vec<(usize, u32)>,
    /// Limit of the gradients' norm, if the step sets one.
    clip: Option<f32>,
    /// Statistics rows that block the update.
    guard: UpdateGuard,
}

impl Update {
    fn new(gradients: &Gradients, guard: UpdateGuard) -> Self {
        let Gradients { contributes, statistics, clip, .. } = gradients;
        Self { contributes: contributes.clone(), statistics: statistics.clone(), clip: *clip, guard }
    }

    /// Returns true if this update fits the gradients. Called in every step, so it neither allocates nor sorts.
    fn matches(&self, gradients: &Gradients, guard: &UpdateGuard) -> bool {
        let bits = |clip: Option<f32>| clip.map(f32::to_bits);
        self.contributes == gradients.contributes
            && self.statistics == gradients.statistics
            && bits(self.clip) == bits(gradients.clip)
            && self.guard == *guard
    }

    /// Returns the ids of the weights in ascending order.
    fn weights(&self) -> Vec<usize> {
        let mut weights = self.contributes.clone();
        weights.sort_unstable();
        weights
    }
}

impl<B: Backend> Trainer<B> {
    /// Launches the update, which does nothing on the device if the guard blocks it. Returns true if it computes a norm.
    pub(in crate::train) fn update(
        &mut self, gradients: &Gradients, guard: UpdateGuard,
    ) -> Result<bool, Error<B::Error>> {
        let clips = self.optimizer.clips_norm() || gradients.clip.is_some();
        let list = match self.updates.iter().find(|(update, _)| update.matches(gradients, &guard)) {
            Some((_, list)) => *list,
            None => {
                self.allocate_average()?;
                let update = Update::new(gradients, guard);
                let operations = self.operations(&update, clips)?;
                if self.updates.len() == MAX_UPDATE_LISTS {
                    self.forget_updates();
                }
                let list = self.exec.add_op_list(operations);
                self.updates.push((update, list));
                list
            }
        };
        self.write_numbers()?;
        self.exec.run_op_list(list).map_err(Error::Device)?;
        Ok(clips)
    }

    /// Clears the cached updates. Needed after a buffer was allocated, because an update refers to the buffers that
    /// existed.
    pub(in crate::train) fn forget_updates(&mut self) {
        self.updates.clear();
        self.exec.clear_lists();
    }

    fn operations(&mut self, update: &Update, clips: bool) -> Result<Vec<Operation>, Error<B::Error>> {
        let (guard, weights) = (update.guard.clone(), update.weights());
        // The norm is that of all gradients, even if other ranks update some of the weights.
        let norm = clips.then(|| self.parameters.fixed().norm());
        let mut operations = Vec::new();
        if let Some(norm) = norm {
            let gradients = weights.iter().map(|&id| Fixed::tensor(id, ParamTensor::Gradient)).collect();
            operations.push(Operation::GlobalNorm { gradients, norm });
        }
        for group in 0..self.optimizer.group_count() {
            let here = |&id: &usize| self.parameters.groups[id] == group && self.is_updated_here(id);
            let members = weights.iter().copied().filter(here);
            let members: Vec<usize> = members.collect();
            let Some(p) = self.optimizer.descriptor(group).map_err(Error::Optimizer)? else {
                let clipping = self.clipping(update)?;
                for id in members {
                    operations.extend(self.custom_update(id, clipping, norm, &guard)?);
                }
                continue;
            };
            let p = with_limit(p, update)?;
            let parameters: Vec<ParamUpdate> =
                members.into_iter().map(|id| self.updated(id, ParamTensor::Gradient, p.states())).collect();
            if !parameters.is_empty() {
                operations.push(Operation::Optimize { p, table: (), guard: guard.clone(), norm, parameters });
            }
        }
        if self.settings.each_call {
            let p = Optimizer::replacing();
            let of = |&(id, _): &(usize, u32)| self.updated(id, ParamTensor::Gradient, p.states());
            let parameters: Vec<ParamUpdate> = update.statistics.iter().map(of).collect();
            if !parameters.is_empty() {
                operations.push(Operation::Optimize { p, table: (), guard, norm: None, parameters });
            }
        } else {
            operations
                .extend(self.statistics(&update.statistics, ParamTensor::Gradient, guard).map_err(Error::Device)?);
        }
        if self.level() == Level::O3 {
            let round = |&id: &usize| converted(id, self.parameters.len(id), ParamTensor::Half, ParamTensor::Master);
            operations.extend(weights.iter().map(round));
        }
        // With a sharded optimizer the averages follow when all ranks have the weights.
        if !self.ranks.shard_map.is_sharded() {
            operations.extend(self.average_update(&weights, update.guard.clone()));
        }
        Ok(operations)
    }

    /// Returns the clipping of gradients for a custom rule, if there is any.
    fn clipping(&self, update: &Update) -> Result<Option<Descriptor>, Error<B::Error>> {
        if !(self.optimizer.clips_norm() || self.optimizer.clips_values() || update.clip.is_some()) {
            return Ok(None);
        }
        with_limit(self.optimizer.clipping().map_err(Error::Optimizer)?, update).map(Some)
    }

    /// Returns the operations that update running statistics from `source`, which has their sums over calls and
    /// micro-batches.
    pub(in crate::train) fn statistics(
        &mut self, statistics: &[(usize, u32)], source: ParamTensor, guard: UpdateGuard,
    ) -> Result<Vec<Operation>, B::Error> {
        let mut operations = Vec::new();
        // Sums of one call are already means; others are divided first.
        let (single, several): (Vec<_>, Vec<_>) = statistics.iter().partition(|(_, calls)| *calls == 1);
        self.allocate_missing(ParamTensor::State0, several.iter().map(|&(id, _)| id))?;
        for &(id, calls) in &several {
            let (mean, len) = (Fixed::tensor(id, ParamTensor::State0), self.parameters.len(id));
            #[expect(clippy::cast_possible_truncation, reason = "rounded")]
            let a = (1.0 / f64::from(calls)) as f32;
            let y = StoreSpec::passthrough(Value::f32(mean, len), Slot::ONE);
            operations.push(unary(Unary::Affine { a, b: 0.0 }, Fixed::tensor(id, source), y));
        }
        let p = Optimizer::statistics();
        for (members, source) in [(single, source), (several, ParamTensor::State0)] {
            let parameters: Vec<ParamUpdate> =
                members.iter().map(|&(id, _)| self.updated(id, source, p.states())).collect();
            if !parameters.is_empty() {
                let guard = guard.clone();
                operations.push(Operation::Optimize { p, table: (), guard, norm: None, parameters });
            }
        }
        Ok(operations)
    }

    /// Returns the buffers of a parameter for an update whose rule has `states` states.
    fn updated(&self, id: usize, source: ParamTensor, states: usize) -> ParamUpdate {
        let there = |part: ParamTensor| Some(Fixed::tensor(id, part)).filter(|&buf| self.exec.has(buf));
        ParamUpdate {
            len: elements(self.parameters.len(id)),
            master: Fixed::tensor(id, ParamTensor::Master),
            grad: Fixed::tensor(id, source),
            state: [0, 1].map(|i| there(STATES[i]).filter(|_| i < states)),
            half: there(ParamTensor::Half),
        }
    }
}

/// Returns the update with the clipping limit of this step, if the step sets one.
fn with_limit<E>(p: Descriptor, update: &Update) -> Result<Descriptor, Error<E>> {
    match update.clip {
        Some(most) => p.max_norm(most).map_err(Error::Optimizer),
        None => Ok(p),
    }
}
