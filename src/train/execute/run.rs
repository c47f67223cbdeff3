//! Running a program: deciding at once, launch by launch, or as it was recorded.

use crate::{
    Error, Inputs,
    exec::Failed,
    graph::{Launch, Purpose, SyncReason, Target},
    train::{Trainer, distributed::MicroBatch, state::check_values},
};
use gradscale_core::backend::{Backend, Slot};
use std::ops::Range;

impl<B: Backend> Trainer<B> {
    /// Uploads, and runs all launches of a program.
    pub(in crate::train) async fn run_program<const N: usize>(
        &mut self, program: usize, batch: &Inputs<'_, N>, clear: Range<u16>,
    ) -> Result<(), Error<B::Error>> {
        if let Inputs::Host(batch) = batch {
            check_values(&self.exec.program(program).trace, batch)?;
        }
        self.place(&self.exec.program(program).inputs.clone(), batch).map_err(Error::Device)?;
        self.run_placed(program, clear).await
    }

    /// Runs the first micro-batch's program over the batch that lies in its places.
    pub(in crate::train) async fn run_again(&mut self, program: usize) -> Result<(), Error<B::Error>> {
        self.run_placed(program, self.exec.rows()).await
    }

    async fn run_placed(&mut self, program: usize, clear: Range<u16>) -> Result<(), Error<B::Error>> {
        // Evaluation in between changes nothing about a training.
        let trains = u64::from(matches!(self.exec.program(program).purpose, Purpose::Train { .. }));
        self.counters.seed += trains;
        let ran = self.run_sent(program, clear).await;
        // What failed may be tried again, with the same seed.
        self.counters.seed -= if ran.is_err() { trains } else { 0 };
        ran
    }

    async fn run_sent(&mut self, program: usize, clear: Range<u16>) -> Result<(), Error<B::Error>> {
        if self.halves_are_behind {
            self.refresh_halves().map_err(Error::Device)?;
        }
        self.check_single_pass(program)?;
        let first = !clear.is_empty();
        self.ran = Some(program);
        self.send(clear).map_err(Error::Device)?;
        // Exponents are fixed within a step: later micro-batches take them as they are.
        let deciding = first && self.exec.program(program).order.iter().any(|&slot| self.sites.at_once(slot));
        let looks = first && self.ranks.decides_in_step() && (deciding || self.observed.is_some());
        // Of several ranks one decides, and the others wait for it, from one synchronisation of statistics to the next.
        let told = deciding && self.ranks.micro_batch == MicroBatch::First;
        if looks {
            self.observed.iter_mut().for_each(Vec::clear);
        } else {
            self.exec.free_scratch();
        }
        let (mut stored, mut apart) = (Vec::new(), true);
        let mut decided = self.sites.decided().len();
        for segment in 0..self.exec.program(program).segment_count() {
            if told && !looks && apart {
                self.broadcast_decisions(decided)?;
                self.send(0..0).map_err(Error::Device)?;
            }
            let ran = if looks {
                self.run_one_by_one(program, segment, &mut stored).await
            } else {
                self.exec.run_segment(program, segment)
            };
            ran.map_err(|(at, error)| match at {
                Some(launch) => self.failed(program, launch, error),
                None => Error::Device(error),
            })?;
            let stop = self.exec.program(program).sync_points.get(segment).map(|point| point.reason);
            apart = !matches!(stop, Some(SyncReason::Bucket(_)));
            if told && looks && apart {
                self.broadcast_decisions(decided)?;
            }
            match stop {
                Some(SyncReason::BatchStats(index)) => {
                    let sync = self.exec.program(program).stats_syncs[index];
                    self.sync_batch_stats(program, sync).await?;
                }
                // Where something is decided, ranks with one part would be told between gradients, others before.
                Some(SyncReason::Bucket(bucket)) if !told => self.launch_bucket(program, bucket).await?,
                Some(SyncReason::Bucket(_)) | None => {}
            }
            if apart {
                decided = self.sites.decided().len();
            }
        }
        Ok(())
    }

    /// The error of a launch, with its layer or operator.
    fn failed(&self, program: usize, launch: usize, error: B::Error) -> Error<B::Error> {
        let program = self.exec.program(program);
        let (node, backward) = program.origins[launch];
        let node = &program.trace.nodes[node];
        Error::Operator { name: node.name.clone(), op: node.op, backward, error }
    }

    /// Launch by launch, deciding sites and observing operands on the way. `stored` are the sites so far.
    async fn run_one_by_one(
        &mut self, program: usize, segment: usize, stored: &mut Vec<Slot>,
    ) -> Result<(), Failed<B::Error>> {
        let range = self.exec.program(program).segment(segment);
        let launches = self.exec.launches(program);
        let mut ran = Ok(());
        for (at, launch) in range.clone().zip(&launches[range]) {
            let site = launch.site();
            // Of several calls in a step, the first.
            let new = site.filter(|target| !stored.contains(&target.to));
            stored.extend(site.map(|target| target.to));
            ran = self.run_looking(launch, new).await.map_err(|error| (Some(at), error));
            if ran.is_err() {
                break;
            }
        }
        self.exec.ran_one_by_one(program, segment, launches, ran.is_ok());
        ran
    }

    /// One launch, with the site that it stores to for the first time.
    async fn run_looking(&mut self, launch: &Launch, site: Option<Target>) -> Result<(), B::Error> {
        if let Some(target) = site
            && self.observed.is_some()
        {
            let operands = self.operands_of(launch, target).await?;
            self.observed.get_or_insert_default().push((target.to, operands));
        }
        match site {
            Some(target) if self.sites.at_once(target.to) => self.run_deciding(launch, target).await,
            _ => self.exec.run(&launch.operation),
        }
    }
}
