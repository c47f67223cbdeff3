//! Execution of a program: replayed as it was recorded, or launch by launch where sites decide or operands are observed.

use crate::{
    Error, Inputs,
    exec::LaunchFailure,
    graph::{Launch, SyncReason},
    train::{Trainer, distributed::MicroBatch, state::check_values},
};
use gradscale_core::backend::{Backend, Slot};

/// Mode in which a program is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::train) enum ExecutionMode {
    /// Continues a step: statistics rows and exponents stay as they are. Used for later micro-batches, evaluation and
    /// running statistics.
    Continue,
    /// Begins a step at the exponents of the last one. Segments are replayed from their recordings.
    Replay,
    /// Begins a step launch by launch: sites without a usable exponent decide, and operands are observed.
    Eager,
    /// As `Eager` on rank 0, which sends the decisions to the other ranks.
    EagerBroadcast,
    /// As `Replay` on another rank, at the exponents that rank 0 sends.
    ReplayReceived,
}

impl ExecutionMode {
    const fn begins_step(self) -> bool {
        !matches!(self, Self::Continue)
    }

    const fn is_eager(self) -> bool {
        matches!(self, Self::Eager | Self::EagerBroadcast)
    }

    const fn shares_decisions(self) -> bool {
        matches!(self, Self::EagerBroadcast | Self::ReplayReceived)
    }
}

impl<B: Backend> Trainer<B> {
    /// Returns the mode in which an attempt at a step begins with this program.
    pub(in crate::train) fn execution_mode(&self, program: usize) -> ExecutionMode {
        let decides = self.exec.program(program).order.iter().any(|&slot| self.sites.at_once(slot));
        let is_eager = self.ranks.decides_in_step() && (decides || self.observed.is_some());
        // One of several ranks decides, and the others wait for it, from one synchronisation of statistics to the next.
        let is_shared = decides && self.ranks.micro_batch == MicroBatch::First;
        match (is_eager, is_shared) {
            (false, false) => ExecutionMode::Replay,
            (true, false) => ExecutionMode::Eager,
            (true, true) => ExecutionMode::EagerBroadcast,
            (false, true) => ExecutionMode::ReplayReceived,
        }
    }

    /// Uploads inputs and control, and runs all launches of a program. Without a batch, the inputs are those of its last
    /// run.
    pub(in crate::train) async fn execute<const N: usize>(
        &mut self, program: usize, batch: Option<&Inputs<'_, N>>, mode: ExecutionMode,
    ) -> Result<(), Error<B::Error>> {
        if let Some(batch) = batch {
            if let Inputs::Host(values) = batch {
                check_values(&self.exec.program(program).trace, values)?;
            }
            self.upload_inputs(&self.exec.program(program).inputs.clone(), batch).map_err(Error::Device)?;
        }
        if self.half_copies_stale {
            self.refresh_halves().map_err(Error::Device)?;
        }
        self.check_single_pass(program)?;
        self.last_run = Some(program);
        let clear = if mode.begins_step() { self.exec.rows() } else { 0..0 };
        self.upload_control(clear).map_err(Error::Device)?;
        if mode.is_eager() {
            self.observed.iter_mut().for_each(Vec::clear);
        } else {
            self.exec.free_scratch();
        }
        let (mut stored, mut known_decisions) = (Vec::new(), self.sites.decided().len());
        // Decisions are exchanged where all ranks synchronise, which they do not at buckets.
        let mut is_synchronized = true;
        for segment in 0..self.exec.program(program).segment_count() {
            if mode == ExecutionMode::ReplayReceived && is_synchronized {
                self.broadcast_decisions(known_decisions)?;
                self.upload_control(0..0).map_err(Error::Device)?;
            }
            let ran = if mode.is_eager() {
                self.run_eagerly(program, segment, &mut stored).await
            } else {
                self.exec.run_segment(program, segment)
            };
            ran.map_err(|(at, error)| match at {
                Some(launch) => self.launch_error(program, launch, error),
                None => Error::Device(error),
            })?;
            let reason = self.exec.program(program).sync_points.get(segment).map(|point| point.reason);
            is_synchronized = !matches!(reason, Some(SyncReason::Bucket(_)));
            if mode == ExecutionMode::EagerBroadcast && is_synchronized {
                self.broadcast_decisions(known_decisions)?;
            }
            match reason {
                Some(SyncReason::BatchStats(index)) => {
                    let sync = self.exec.program(program).stats_syncs[index];
                    self.sync_batch_stats(program, sync).await?;
                }
                // In a step that decides, ranks with a single micro-batch would receive decisions between buckets, others
                // before them.
                Some(SyncReason::Bucket(bucket)) if !mode.shares_decisions() => {
                    self.launch_bucket(program, bucket).await?
                }
                Some(SyncReason::Bucket(_)) | None => {}
            }
            if is_synchronized {
                known_decisions = self.sites.decided().len();
            }
        }
        Ok(())
    }

    /// Returns the error of a launch, with its layer or operator.
    fn launch_error(&self, program: usize, launch: usize, error: B::Error) -> Error<B::Error> {
        let program = self.exec.program(program);
        let (node, backward) = program.origins[launch];
        let node = &program.trace.nodes[node];
        Error::Operator { name: node.name.clone(), op: node.op, backward, error }
    }

    /// Runs a segment launch by launch. Sites decide, and operands are observed. `stored` lists the sites that have
    /// stored.
    async fn run_eagerly(
        &mut self, program: usize, segment: usize, stored: &mut Vec<Slot>,
    ) -> Result<(), LaunchFailure<B::Error>> {
        let range = self.exec.program(program).segment(segment);
        let launches = self.exec.launches(program);
        let mut ran = Ok(());
        for (at, launch) in range.clone().zip(&launches[range]) {
            ran = if self.decides_inside(launch) {
                self.run_unfused(&launch.unfused, stored).await
            } else {
                self.run_launch(launch, stored).await
            }
            .map_err(|error| (Some(at), error));
            if ran.is_err() {
                break;
            }
        }
        self.exec.ran_one_by_one(program, segment, launches, ran.is_ok());
        ran
    }
    /// Runs a launch, whose site decides or observes its operands if this is its first store of the step.
    async fn run_launch(&mut self, launch: &Launch, stored: &mut Vec<Slot>) -> Result<(), B::Error> {
        let site = launch.site();
        // If a site is stored to several times in a step, its first call decides.
        let new = site.filter(|target| !stored.contains(&target.to));
        stored.extend(site.map(|target| target.to));
        match new {
            Some(target) => self.run_site(launch, target).await,
            None => self.exec.run(&launch.operation),
        }
    }

    /// Returns true if a fused launch has a site that decides in the step, or whose operands are observed: these need values
    /// that the launch does not store.
    fn decides_inside(&self, launch: &Launch) -> bool {
        let mut sites = launch.unfused.iter().filter_map(Launch::site);
        sites.any(|target| self.observed.is_some() || self.sites.at_once(target.to))
    }

    /// Runs the launches that a fused one replaces.
    async fn run_unfused(&mut self, launches: &[Launch], stored: &mut Vec<Slot>) -> Result<(), B::Error> {
        self.exec.allocate_unfused(launches)?;
        let mut ran = Ok(());
        for launch in launches {
            ran = self.run_launch(launch, stored).await;
            if ran.is_err() {
                break;
            }
        }
        self.exec.free_unfused();
        ran
    }
}
