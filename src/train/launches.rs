//! Running a program: deciding at once, launch by launch, or as it was recorded.

use super::{Recorded, Trainer, prefetch::check_values, run::run};
use crate::{
    Error, Inputs,
    graph::{Launch, Purpose},
};
use gradscale_core::backend::{Backend, Slot};

impl<B: Backend> Trainer<B> {
    /// Uploads, and runs all launches of a program.
    pub(super) fn run_program<const N: usize>(
        &mut self, program: usize, batch: &Inputs<'_, N>, clear: std::ops::Range<u16>,
    ) -> Result<(), Error<B::Error>> {
        if let Inputs::Host(batch) = batch {
            check_values(&self.programs[program].trace, batch)?;
        }
        self.place(&self.programs[program].inputs.clone(), batch).map_err(Error::Device)?;
        self.run_placed(program, clear)
    }

    /// Runs the first micro-batch's program over the batch that lies in its places.
    pub(super) fn run_again(&mut self, program: usize) -> Result<(), Error<B::Error>> {
        self.run_placed(program, self.all_rows())
    }

    fn run_placed(&mut self, program: usize, clear: std::ops::Range<u16>) -> Result<(), Error<B::Error>> {
        // Evaluation in between changes nothing about a training.
        if let Purpose::Train { .. } = self.programs[program].purpose {
            self.seed += 1;
        }
        let first = !clear.is_empty();
        self.send(clear).map_err(Error::Device)?;
        let launches = std::mem::take(&mut self.programs[program].launches);
        let mut at = None;
        let done = self.run_launches(program, &launches, first, &mut at);
        self.programs[program].launches = launches;
        done.map_err(|error| match at {
            Some(launch) => self.failed(program, launch, error),
            None => Error::Device(error),
        })
    }

    /// The error of a launch, with its layer or operator.
    fn failed(&self, program: usize, launch: usize, error: B::Error) -> Error<B::Error> {
        let program = &self.programs[program];
        let (node, backward) = program.origins[launch];
        let node = &program.trace.nodes[node];
        Error::Operator { name: node.name.clone(), op: node.op, backward, error }
    }

    /// `at` is the launch that failed, if one did.
    fn run_launches(
        &mut self, program: usize, launches: &[Launch], first: bool, at: &mut Option<usize>,
    ) -> Result<(), B::Error> {
        let order = &self.programs[program].order;
        // Exponents are fixed within a step: later micro-batches take them as they are.
        let deciding = order.iter().any(|&slot| self.sites.at_once(slot));
        if first && (deciding || self.observed.is_some()) {
            self.observed.iter_mut().for_each(Vec::clear);
            let mut stored: Vec<Slot> = Vec::new();
            for (i, launch) in launches.iter().enumerate() {
                *at = Some(i);
                let site = launch.site();
                // Of several calls in a step, the first.
                let new = site.filter(|target| !stored.contains(&target.to));
                if let Some(target) = new
                    && self.observed.is_some()
                {
                    let operands = self.operands_of(launch, target)?;
                    self.observed.get_or_insert_default().push((target.to, operands));
                }
                match new {
                    Some(target) if self.sites.at_once(target.to) => self.run_deciding(launch, target)?,
                    _ => self.run_one(&launch.operation)?,
                }
                stored.extend(site.map(|target| target.to));
            }
            *at = None;
            // What has been recorded names the same places and the same table.
            if let Recorded::Cold = self.recorded[program] {
                self.recorded[program] = Recorded::Warm;
            }
            return Ok(());
        }
        self.memory.free_scratch();
        let Self { device, table, memory, recorded, .. } = self;
        let Some(table) = table.as_ref() else { return Ok(()) };
        let mut all = || {
            let one = |(i, launch): (usize, &Launch)| {
                run(device, table, memory, &launch.operation).inspect_err(|_| *at = Some(i))
            };
            launches.iter().enumerate().try_for_each(one)
        };
        match &recorded[program] {
            Recorded::Ready(recording) => return device.repeat(recording),
            Recorded::Plain => return all(),
            Recorded::Cold => {
                all()?;
                recorded[program] = Recorded::Warm;
            }
            Recorded::Warm if self.recording => {
                // With a recording nothing has run yet.
                recorded[program] = match device.record(all)? {
                    Some(recording) => {
                        device.repeat(&recording)?;
                        Recorded::Ready(recording)
                    }
                    None => Recorded::Plain,
                };
            }
            Recorded::Warm => return all(),
        }
        Ok(())
    }
}
