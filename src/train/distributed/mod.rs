//! Ranks that train together: how a trainer joins them, and what they decide alike.

mod buckets;
mod grad_reduce;
mod micro_batches;
mod sharded_optimizer;
mod step_report;
mod sync_batch_norm;

use crate::{
    Error,
    distributed::{BatchStatistics, Exchange, Group, Kind, Overlap, ParallelError, Route, Traffic},
    graph::{Fixed, Part},
    parameters::Role,
    sites::Decided,
    train::Trainer,
};
use buckets::Parts;
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, EngineAvailability, Slot},
    solve::{Choice, LimitedBy, NoDecision},
};
use pollster::block_on;
use serde::{Deserialize, Serialize};

/// What a trainer knows of the other ranks.
#[derive(Debug)]
pub(in crate::train) struct Ranks {
    pub group: Group,
    /// At which exponent each parameter's gradients travel in the coming step; none before there were any.
    pub exponents: Vec<Option<i32>>,
    /// Which part of a step is in progress.
    pub turn: Turn,
    /// How gradients are added.
    pub exchange: Exchange,
    /// When they travel.
    pub overlap: Overlap,
    /// Those of the step in progress.
    pub parts: Parts,
    /// How they get there.
    pub route: Route,
    /// Whether the optimizer is to be divided among ranks, and who has which weights then.
    pub sharded: bool,
    pub owners: sharded_optimizer::Owners,
    /// Whether their devices are of several kinds, which round sums otherwise.
    pub mixed: bool,
}

/// Which part of a step is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::train) enum Turn {
    /// The whole step.
    Whole,
    /// This rank's first part. Rank 0's is the first of all, in which sites decide.
    First,
    /// A later one.
    Later,
}

/// A decision made at once, for other ranks: slot, exponent of the row, exponent that came in, and what was chosen: k, by
/// what it was bound (its place in [`LimitedBy::ALL`]), bits of the share that flushes; or why nothing was (its place in
/// [`NoDecision::ALL`]).
#[derive(Serialize, Deserialize)]
struct Told(u16, i32, i32, Result<(i32, usize, u64), usize>);

impl Told {
    fn of(&Decided { slot, verdict, measured_at, incoming }: &Decided) -> Self {
        let place = |found: Option<usize>| found.unwrap_or(usize::MAX);
        let chosen = |Choice { k, held, gamma }: Choice| {
            (k, place(LimitedBy::ALL.iter().position(|&bound| bound == held)), gamma.to_bits())
        };
        let none = |why: NoDecision| place(NoDecision::ALL.iter().position(|&one| one == why));
        Self(slot.0, measured_at, incoming, verdict.map(chosen).map_err(none))
    }

    /// None of a reason that this version has not.
    fn verdict(&self) -> Option<Result<Choice, NoDecision>> {
        Some(match self.3 {
            Ok((k, bound, gamma)) => Ok(Choice { k, held: *LimitedBy::ALL.get(bound)?, gamma: f64::from_bits(gamma) }),
            Err(why) => Err(*NoDecision::ALL.get(why)?),
        })
    }
}

impl Ranks {
    /// One rank.
    pub fn alone(parameters: usize) -> Self {
        let (exponents, turn, exchange) = (vec![None; parameters], Turn::Whole, Exchange::Exact);
        let (route, sharded, owners) = (Route::Host(None), false, sharded_optimizer::Owners::default());
        let (group, overlap, parts) = (Group::alone(), Overlap::default(), Parts::default());
        Self { group, exponents, turn, exchange, overlap, parts, route, sharded, owners, mixed: false }
    }

    /// Whether this rank decides what is decided inside a step.
    pub fn decides(&self) -> bool {
        self.turn == Turn::Whole || self.group.rank() == 0
    }
}

impl<B: Backend> Trainer<B> {
    /// Trains together with other ranks: see [`crate::distributed`]. Parameters and the optimizer's state become those of
    /// rank 0; steps are then taken by [`Trainer::step_parts`] alone, and a checkpoint is loaded on every rank.
    ///
    /// # Errors
    /// Ranks with another version, network, method, optimizer, exchange or division of the optimizer; of another kind of
    /// device, unless the optimizer is divided; a rank that cannot be reached.
    pub fn distributed(mut self, group: Group) -> Result<Self, Error<B::Error>> {
        let joined = self.join(&group);
        if let Err(error) = &joined
            && !matches!(error, Error::Parallel(_))
        {
            group.fail(&error.to_string());
        }
        joined?;
        self.ranks.group = group;
        // What was compiled before may be another program now.
        self.last = None;
        Ok(self)
    }

    /// How the gradients of parts are added, here or on other ranks; [`Exchange::Exact`] unless told. On all ranks the same,
    /// before the first step.
    #[must_use]
    pub const fn with_exchange(mut self, exchange: Exchange) -> Self {
        self.ranks.exchange = exchange;
        self
    }

    /// When the gradients of parts travel to other ranks; [`Overlap::On`] unless told. On all ranks the same, before
    /// [`Trainer::distributed`]. Weights are the same: of [`Exchange::Exact`] in any case, of [`Exchange::Fast`] where the
    /// engine adds each value in one order. Where devices reach one another ([`Trainer::route`]) gradients travel when the
    /// backward pass is over.
    #[must_use]
    pub fn with_overlap(mut self, overlap: Overlap) -> Self {
        self.ranks.overlap = overlap;
        self.last = None;
        self
    }

    /// Of which batch batch norm takes mean and variance in [`Trainer::step_parts`]; [`BatchStatistics::Rank`] unless told.
    /// On all ranks the same; a checkpoint says it.
    ///
    /// Over [`BatchStatistics::World`] a step has as many parts as ranks. Means, variances and the two sums of the backward
    /// pass are then over the values of all parts, however many each has, and running statistics are those of all of them.
    /// Ranks meet at each layer once on the way forward and once back, in the order of the network, so all must run the same
    /// layers. What runs outside of such a step ([`Trainer::update_statistics`], say) is normalised by its own batch.
    #[must_use]
    pub fn with_batch_statistics(mut self, of: BatchStatistics) -> Self {
        self.settings.batch_statistics = of;
        self.last = None;
        self
    }

    /// Selects the engine of products of rank 0 on all ranks, because each rank may have timed its own device.
    fn share_engine(&mut self, group: &Group) -> Result<(), Error<B::Error>> {
        let name = |device: &B| device.product_engine().map(str::to_owned);
        // Devices of one kind, so all ranks end here, or none.
        let Some(mine) = name(self.exec.device()) else { return Ok(()) };
        let first = group.gather(Kind::Told, mine.as_bytes())?.into_iter().next().unwrap_or_default();
        let first = String::from_utf8_lossy(&first).into_owned();
        let availability = self.exec.device().product_engine_availability(&first);
        if first != mine && availability == EngineAvailability::Available {
            self.exec.select_product_engine(&first).map_err(Error::Device)?;
        }
        // A rank whose device lacks the engine, or that has pinned another one, ends here.
        Ok(group.agree("engine of products", &name(self.exec.device()).unwrap_or_default())?)
    }

    fn join(&mut self, group: &Group) -> Result<(), Error<B::Error>> {
        if self.settings.each_call {
            return Err(ParallelError::Part("has no running statistics of each call").into());
        }
        group.agree("version", env!("CARGO_PKG_VERSION"))?;
        let parameters = self.parameters.all.iter().map(|one| format!("{} {}", one.name, one.shape));
        group.agree("network", &parameters.collect::<Vec<_>>().join(", "))?;
        match group.agree("device", kind(self.exec.device().caps().name)) {
            // Then each weight has one owner, whose device updates it for all.
            Err(ParallelError::Other { .. }) if self.ranks.sharded => self.ranks.mixed = true,
            alike => alike?,
        }
        if !self.ranks.mixed {
            self.share_engine(group)?;
        }
        self.told().iter().try_for_each(|(what, told)| group.agree(what, told))?;
        group.agree("overlap", &self.ranks.overlap.to_string())?;
        group.agree("optimizer", if self.ranks.sharded { "divided" } else { "whole" })?;
        for id in 0..self.parameters.all.len() {
            let constant = self.parameters.all[id].role == Role::Constant;
            let saved = self.saved_parts(id).into_iter().map(|(part, _)| part);
            for part in constant.then_some(Part::Master).into_iter().chain(saved) {
                let (buf, len) = (Fixed::part(id, part), self.parameters.len(id));
                let mut mine = Vec::new();
                if group.rank() == 0 {
                    let values = block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device)?;
                    mine = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                }
                let all = group.gather(Kind::Values, &mine)?;
                let values = sharded_optimizer::floats(all.first().map_or(&[], Vec::as_slice));
                self.parameters.check_len(id, values.len())?;
                self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
            }
        }
        self.refresh_halves().map_err(Error::Device)?;
        self.ranks.route = self.connect(group)?;
        self.divide((group.rank(), group.size()))
    }

    /// What has travelled between ranks so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.ranks.group.traffic()
    }

    /// Rank 0 tells the others what it has decided inside the step beside the first so many, and they take it.
    pub(in crate::train) fn share_decisions(&mut self, before: usize) -> Result<(), Error<B::Error>> {
        let told: Vec<Told> = self.sites.decided().iter().skip(before).map(Told::of).collect();
        let mine = serde_json::to_vec(&told).unwrap_or_default();
        let first = self.ranks.group.gather(Kind::Decisions, &mine)?.into_iter().next().unwrap_or_default();
        if self.ranks.group.rank() == 0 {
            return Ok(());
        }
        let told: Vec<Told> = serde_json::from_slice(&first).map_err(|_| ParallelError::Apart(0))?;
        for one in told {
            let Told(slot, measured_at, incoming, _) = one;
            let verdict = one.verdict().filter(|_| usize::from(slot) < self.sites.len());
            let verdict = verdict.ok_or_else(|| ParallelError::Apart(self.ranks.group.rank()))?;
            self.sites.decide(Slot(slot), verdict, measured_at, incoming);
        }
        Ok(())
    }
}

/// What of a device's name says how it computes: not how many threads a CPU has, nor which of its kind a GPU is.
fn kind(name: &str) -> &str {
    let numbered = name.strip_prefix("CUDA ").and_then(|name| name.split_once(", "));
    let threaded = name.strip_suffix(" threads").and_then(|name| name.rsplit_once(", "));
    numbered.map(|(_, kind)| kind).or(threaded.map(|(kind, _)| kind)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_devices_compute_alike() {
        assert_eq!(kind("CPU, AVX-512, 12 threads"), "CPU, AVX-512");
        assert_eq!(kind("CUDA 3, NVIDIA H100, sm_90, 132 multiprocessors"), "NVIDIA H100, sm_90, 132 multiprocessors");
        assert_eq!(kind("llvmpipe (LLVM 15.0.6, 256 bits)"), "llvmpipe (LLVM 15.0.6, 256 bits)");
    }

    #[test]
    fn decisions_are_told_as_they_are() {
        let choice = |held| Ok(Choice { k: -7, held, gamma: 0.125 });
        let verdicts = LimitedBy::ALL.into_iter().map(choice).chain(NoDecision::ALL.into_iter().map(Err));
        for verdict in verdicts {
            let told = Told::of(&Decided { slot: Slot(3), verdict, measured_at: 5, incoming: -2 });
            let told = serde_json::to_vec(&told).expect("words");
            let told: Told = serde_json::from_slice(&told).expect("words");
            assert_eq!((told.0, told.1, told.2, told.verdict()), (3, 5, -2, Some(verdict)));
        }
        assert_eq!(Told(3, 5, -2, Err(NoDecision::ALL.len())).verdict(), None);
    }
}
