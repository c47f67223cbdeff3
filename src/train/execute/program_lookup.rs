//! Lookup of compiled programs, and allocation of their buffers: the slot table, half copies and pending running
//! statistics.

use crate::{
    Error,
    graph::{CompileOptions, Fixed, ParamTensor, Program, Purpose, Trace, compile},
    parameters::Role,
    train::{Trainer, execute::Stores},
};
use gradscale_core::{amp::Level, backend::Backend};
use std::sync::Arc;

impl<B: Backend> Trainer<B> {
    /// Returns the index of the compiled program for a trace, which is compiled if it is not in the cache.
    pub(in crate::train) fn program(
        &mut self, trace: &Arc<Trace>, purpose: Purpose, prefix: &str,
    ) -> Result<usize, Error<B::Error>> {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}:") };
        let stores = self.settings.probed;
        let prefix = stores.map_or(prefix.clone(), |stores| format!("{}{prefix}", stores.prefix()));
        let distributed = self.distributed_plan();
        let scales_forward = purpose != Purpose::Update && self.sites.forward_active();
        if let Some(index) = self.exec.lookup(trace, purpose, &prefix, distributed, scales_forward) {
            return Ok(index);
        }
        let (constants, device) = self.exec.constants_and_device();
        let mut shared = CompileOptions {
            policy: &self.settings.policy,
            layers: &self.settings.layers,
            weight_gradients: stores.map_or(self.settings.weight_gradients, Stores::weight_gradients),
            single_gradients: stores == Some(Stores::Single),
            parameters: &self.parameters.infos,
            sites: &mut self.sites,
            constants,
            prefix: &prefix,
            retain_buffers: self.settings.retain_buffers,
            each_call: self.settings.each_call.then_some(self.settings.momentum),
            distributed,
            fuses_attention: &|p| device.fuses_attention(p),
            preassigned_inputs: &[],
        };
        let program = compile(trace, purpose, &mut shared);
        // Needed even if compilation fails, because it may have created sites before.
        self.grow_table().map_err(Error::Device)?;
        let program = program?;
        self.allocate_buffers(&program).map_err(Error::Device)?;
        // The new program may use the memory of outputs that were readable until now.
        self.last_run = None;
        if let Purpose::Train { .. } = purpose {
            self.live_backward = None;
        }
        self.exec.insert(program).map_err(Error::Device)
    }

    /// Allocates the buffers of parameters that a new program reads or writes.
    fn allocate_buffers(&mut self, program: &Program) -> Result<(), B::Error> {
        self.allocate_missing(program.purpose.statistics(), program.statistics.iter().map(|&(id, _)| id))?;
        // With O3 there are no masters: the updated values are rounded to half in each step.
        let rounds = self.level() == Level::O3;
        let mut halves = program.halves.clone();
        if rounds {
            let weights = self.parameters.infos.iter().enumerate().filter(|(_, one)| one.role == Role::Weight);
            halves.extend(weights.map(|(id, _)| id));
        }
        if program.purpose == Purpose::EvaluateAverage {
            // Averages of weights have half copies of their own, which an evaluation writes.
            let is_weight = |id: &usize| self.parameters.infos[*id].role == Role::Weight;
            let (averages, others): (Vec<usize>, Vec<usize>) = halves.into_iter().partition(is_weight);
            self.allocate_missing(ParamTensor::AverageHalf, averages.into_iter())?;
            halves = others;
        }
        if halves.iter().all(|&id| self.exec.has(Fixed::tensor(id, ParamTensor::Half))) {
            return Ok(());
        }
        // Existing half copies are allocated again too, so that one launch of an update writes all.
        halves.extend((0..self.parameters.all.len()).filter(|&id| self.exec.has(Fixed::tensor(id, ParamTensor::Half))));
        halves.sort_unstable();
        halves.dedup();
        self.allocate_tensors(ParamTensor::Half, &halves)?;
        self.forget_updates();
        self.refresh_halves()
    }

    /// Allocates one part of each of these parameters that does not have it.
    pub(in crate::train) fn allocate_missing(
        &mut self, part: ParamTensor, ids: impl Iterator<Item = usize>,
    ) -> Result<(), B::Error> {
        let missing: Vec<usize> = ids.filter(|&id| !self.exec.has(Fixed::tensor(id, part))).collect();
        self.allocate_tensors(part, &missing)
    }

    /// Resizes the device's table of exponents and statistics rows to the number of sites.
    pub(in crate::train) fn grow_table(&mut self) -> Result<(), B::Error> {
        self.exec.grow_table(self.sites.len(), self.hyperparameters.len())
    }

    /// Copies the masters to their half copies. If the device fails, the next program tries again.
    pub(in crate::train) fn refresh_halves(&mut self) -> Result<(), B::Error> {
        self.half_copies_stale = true;
        for id in 0..self.parameters.all.len() {
            if self.exec.has(Fixed::tensor(id, ParamTensor::Half)) {
                self.convert(id, ParamTensor::Master, ParamTensor::Half)?;
                if self.level() == Level::O3 {
                    self.convert(id, ParamTensor::Half, ParamTensor::Master)?;
                }
            }
        }
        self.half_copies_stale = false;
        Ok(())
    }
}
