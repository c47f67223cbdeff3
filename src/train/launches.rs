//! Running a program: deciding at once, launch by launch, or as it was recorded.

use super::{Trainer, prefetch::check_values};
use crate::{
    Error, Inputs,
    exec::Failed,
    graph::{Launch, Purpose, Target},
};
use gradscale_core::backend::{Backend, Slot};
use std::ops::Range;

impl<B: Backend> Trainer<B> {
    /// Uploads, and runs all launches of a program.
    pub(super) fn run_program<const N: usize>(
        &mut self, program: usize, batch: &Inputs<'_, N>, clear: Range<u16>,
    ) -> Result<(), Error<B::Error>> {
        if let Inputs::Host(batch) = batch {
            check_values(&self.exec.program(program).trace, batch)?;
        }
        self.place(&self.exec.program(program).inputs.clone(), batch).map_err(Error::Device)?;
        self.run_placed(program, clear)
    }

    /// Runs the first micro-batch's program over the batch that lies in its places.
    pub(super) fn run_again(&mut self, program: usize) -> Result<(), Error<B::Error>> {
        self.run_placed(program, self.exec.rows())
    }

    fn run_placed(&mut self, program: usize, clear: Range<u16>) -> Result<(), Error<B::Error>> {
        // Evaluation in between changes nothing about a training.
        let trains = u64::from(matches!(self.exec.program(program).purpose, Purpose::Train { .. }));
        self.counters.seed += trains;
        let ran = self.run_sent(program, clear);
        // What failed may be tried again, with the same seed.
        self.counters.seed -= if ran.is_err() { trains } else { 0 };
        ran
    }

    fn run_sent(&mut self, program: usize, clear: Range<u16>) -> Result<(), Error<B::Error>> {
        if self.halves_are_behind {
            self.refresh_halves().map_err(Error::Device)?;
        }
        let first = !clear.is_empty() && self.ranks.decides();
        self.ran = Some(program);
        self.send(clear).map_err(Error::Device)?;
        // Exponents are fixed within a step: later micro-batches take them as they are.
        let deciding = self.exec.program(program).order.iter().any(|&slot| self.sites.at_once(slot));
        let ran = if first && (deciding || self.observed.is_some()) {
            self.run_one_by_one(program)
        } else {
            self.exec.free_scratch();
            self.exec.run_program(program)
        };
        ran.map_err(|(at, error)| match at {
            Some(launch) => self.failed(program, launch, error),
            None => Error::Device(error),
        })
    }

    /// The error of a launch, with its layer or operator.
    fn failed(&self, program: usize, launch: usize, error: B::Error) -> Error<B::Error> {
        let program = self.exec.program(program);
        let (node, backward) = program.origins[launch];
        let node = &program.trace.nodes[node];
        Error::Operator { name: node.name.clone(), op: node.op, backward, error }
    }

    /// Launch by launch, deciding sites and observing operands on the way.
    fn run_one_by_one(&mut self, program: usize) -> Result<(), Failed<B::Error>> {
        self.observed.iter_mut().for_each(Vec::clear);
        let launches = self.exec.launches(program);
        let mut stored: Vec<Slot> = Vec::new();
        let mut one = |launch: &Launch| {
            let site = launch.site();
            // Of several calls in a step, the first.
            let new = site.filter(|target| !stored.contains(&target.to));
            stored.extend(site.map(|target| target.to));
            self.run_looking(launch, new)
        };
        let ran = launches.iter().enumerate().try_for_each(|(i, launch)| one(launch).map_err(|error| (Some(i), error)));
        self.exec.ran_one_by_one(program, launches, ran.is_ok());
        ran
    }

    /// One launch, with the site that it stores to for the first time.
    fn run_looking(&mut self, launch: &Launch, site: Option<Target>) -> Result<(), B::Error> {
        if let Some(target) = site
            && self.observed.is_some()
        {
            let operands = self.operands_of(launch, target)?;
            self.observed.get_or_insert_default().push((target.to, operands));
        }
        match site {
            Some(target) if self.sites.at_once(target.to) => self.run_deciding(launch, target),
            _ => self.exec.run(&launch.operation),
        }
    }
}
