//! Compiled programs, and what they need: memory, constants, half copies, a table.

use super::{Recorded, Trainer};
use crate::{
    Error,
    graph::{Buf, Fixed, Part, Program, Purpose, Shared, Target, Trace, Value, cast, compile},
    parameters::Role,
};
use gradscale_core::{
    amp::Level,
    backend::{Backend, DType, Data, Slot},
};

impl<B: Backend> Trainer<B> {
    /// The compiled program of a trace.
    pub(super) fn program(&mut self, trace: Trace, purpose: Purpose, prefix: &str) -> Result<usize, Error<B::Error>> {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}:") };
        let same = |one: &Program| one.purpose == purpose && one.prefix == prefix && one.trace == trace;
        self.clock += 1;
        if let Some(index) = self.programs.iter().position(same) {
            self.programs[index].used = self.clock;
            return Ok(index);
        }
        let mut shared = Shared {
            policy: &self.policy,
            layers: &self.layers,
            weight_gradients: self.weight_gradients,
            parameters: &self.known,
            sites: &mut self.sites,
            constants: &mut self.constants,
            prefix: &prefix,
            keep: self.keep,
        };
        let mut program = compile(&trace, purpose, &mut shared)?;
        program.used = self.clock;
        self.prepare(&mut program).map_err(Error::Device)?;
        if let Some(index) = self.evicted() {
            (self.programs[index], self.recorded[index]) = (program, Recorded::Cold);
            return Ok(index);
        }
        self.programs.push(program);
        self.recorded.push(Recorded::Cold);
        Ok(self.programs.len() - 1)
    }

    /// The program that gives its place to another: where there are enough of them, the one not used for longest, but
    /// none of those that ran since the last backward pass began, which can be looked at and repeated.
    fn evicted(&self) -> Option<usize> {
        let since = self.last.as_ref().map_or(u64::MAX, |(index, _)| self.programs[*index].used);
        let older = (0..self.programs.len()).filter(|&index| self.programs[index].used < since);
        older.min_by_key(|&index| self.programs[index].used).filter(|_| self.programs.len() >= self.most_programs)
    }

    /// Memory, constants, half copies and a table for a new program.
    fn prepare(&mut self, program: &mut Program) -> Result<(), B::Error> {
        // Also those of programs that could not be finished: the next one finds them known.
        for (index, values) in self.constants.iter().enumerate() {
            let constant = self.fixed.constant(index);
            if !self.memory.has(constant) {
                let mut buffer = self.device.alloc(DType::F32, values.len())?;
                self.device.write(Data::F32(values), &mut buffer)?;
                self.memory.put(constant, buffer);
            }
        }
        let Self { device, memory, recorded, .. } = self;
        memory.link(device, program, || forget(recorded))?;
        self.fit_table()?;
        for &(id, _) in &program.statistics {
            let waiting = Fixed::part(id, program.purpose.statistics());
            if !self.memory.has(waiting) {
                let buffer = self.device.alloc(DType::F32, self.definitions[id].shape.len())?;
                self.memory.put(waiting, buffer);
            }
        }
        // O3 has no masters: what the optimizer updates is rounded to half each time.
        let rounds = self.level() == Level::O3;
        let weights =
            |(id, one): (usize, &crate::graph::ParameterInfo)| (rounds && one.role == Role::Weight).then_some(id);
        let halves: Vec<usize> =
            program.halves.iter().copied().chain(self.known.iter().enumerate().filter_map(weights)).collect();
        for id in halves {
            let half = Fixed::part(id, Part::Half);
            if !self.memory.has(half) {
                let buffer = self.device.alloc(DType::F16, self.definitions[id].shape.len())?;
                self.memory.put(half, buffer);
                self.convert(id, self.master(id), half)?;
                if rounds {
                    self.convert(id, half, self.master(id))?;
                }
            }
        }
        Ok(())
    }

    /// A table for all sites.
    pub(super) fn fit_table(&mut self) -> Result<(), B::Error> {
        if self.slots < self.sites.len() {
            let slots = u16::try_from(self.sites.len()).unwrap_or(u16::MAX);
            let dials = u16::try_from(self.dials.len()).unwrap_or(u16::MAX);
            self.table = Some(self.device.table(slots, dials)?);
            self.slots = self.sites.len();
            // Recordings name the table that they were made with.
            forget(&mut self.recorded);
        }
        Ok(())
    }

    /// Copies a part of a parameter into another of another type.
    pub(super) fn convert(&mut self, id: usize, from: Buf, to: Buf) -> Result<(), B::Error> {
        let to = Value::single(to, self.definitions[id].shape.len());
        self.run_one(&cast(from, Target::keep(to, Slot::ONE)))
    }
}

/// Recordings name buffers and a table; where one of these is another, they are made anew.
fn forget<R>(recorded: &mut [Recorded<R>]) {
    recorded.iter_mut().for_each(|recorded| *recorded = Recorded::Cold);
}
