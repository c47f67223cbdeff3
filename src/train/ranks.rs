//! Ranks that train together: how a trainer joins them, and what they decide alike.

use super::Trainer;
use crate::{
    Error,
    graph::{Fixed, Part},
    parallel::{Group, Kind, ParallelError, Traffic},
    parameters::Role,
    sites::Decided,
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, Slot},
    solve::{Choice, LimitedBy, NoDecision},
};
use serde::{Deserialize, Serialize};

/// What a trainer knows of the other ranks.
#[derive(Debug)]
pub(super) struct Ranks {
    pub group: Group,
    /// At which exponent each parameter's gradients travel in the coming step; none before there were any.
    pub exponents: Vec<Option<i32>>,
    /// Which part of a step is in progress.
    pub turn: Turn,
}

/// Which part of a step is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The whole step.
    Whole,
    /// This rank's first part. Rank 0's is the first of all, in which sites decide.
    First,
    /// A later one.
    Later,
}

/// A decision made at once, for other ranks: slot, exponent of the row, exponent that came in, and what was chosen: k, by
/// what it was bound (its place in [`LimitedBy::ALL`]), bits of the share that flushes.
#[derive(Serialize, Deserialize)]
struct Told(u16, i32, i32, Option<(i32, usize, u64)>);

impl Ranks {
    /// One rank.
    pub fn alone(parameters: usize) -> Self {
        Self { group: Group::alone(), exponents: vec![None; parameters], turn: Turn::Whole }
    }

    /// Whether this rank decides what is decided inside a step.
    pub fn decides(&self) -> bool {
        self.turn == Turn::Whole || self.group.rank() == 0
    }
}

impl<B: Backend> Trainer<B> {
    /// Trains together with other ranks: see [`crate::parallel`]. Parameters and the optimizer's state become those of
    /// rank 0; steps are then taken by [`Trainer::step_parts`] alone, and a checkpoint is loaded on every rank.
    ///
    /// # Errors
    /// Ranks with another version, network, method or optimizer; a rank that cannot be reached.
    pub fn distributed(mut self, group: Group) -> Result<Self, Error<B::Error>> {
        let joined = self.join(&group);
        if let Err(error) = &joined
            && !matches!(error, Error::Parallel(_))
        {
            group.fail(&error.to_string());
        }
        joined?;
        self.ranks.group = group;
        Ok(self)
    }

    fn join(&mut self, group: &Group) -> Result<(), Error<B::Error>> {
        if self.settings.each_call {
            return Err(ParallelError::Part("has no running statistics of each call").into());
        }
        group.agree("version", env!("CARGO_PKG_VERSION"))?;
        let parameters = self.parameters.all.iter().map(|one| format!("{} {}", one.name, one.shape));
        group.agree("network", &parameters.collect::<Vec<_>>().join(", "))?;
        // How many threads a CPU has changes nothing.
        let device = self.exec.device().caps().name;
        let kind =
            device.strip_suffix(" threads").and_then(|name| name.rsplit_once(", ")).map_or(device, |(kind, _)| kind);
        group.agree("device", kind)?;
        self.told().iter().try_for_each(|(what, told)| group.agree(what, told))?;
        for id in 0..self.parameters.all.len() {
            let constant = self.parameters.all[id].role == Role::Constant;
            let saved = self.saved_parts(id).into_iter().map(|(part, _)| part);
            for part in constant.then_some(Part::Master).into_iter().chain(saved) {
                let (buf, len) = (Fixed::part(id, part), self.parameters.len(id));
                let mut mine = Vec::new();
                if group.rank() == 0 {
                    let values = self.exec.read(buf, Precision::Single, len).map_err(Error::Device)?;
                    mine = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                }
                let all = group.gather(Kind::Values, &mine)?;
                let first = all.first().map_or(&[][..], Vec::as_slice);
                let values: Vec<f32> = first
                    .chunks_exact(4)
                    .map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]))
                    .collect();
                self.parameters.check_len(id, values.len())?;
                self.exec.write(buf, Data::F32(&values)).map_err(Error::Device)?;
            }
        }
        self.refresh_halves().map_err(Error::Device)
    }

    /// What has travelled between ranks so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.ranks.group.traffic()
    }

    /// Rank 0 tells the others what it has decided inside the step, and they take it.
    pub(super) fn share_decisions(&mut self) -> Result<(), Error<B::Error>> {
        let tells = |one: &Decided| {
            let chosen = one.verdict.ok().map(|Choice { k, held, gamma }| {
                (k, LimitedBy::ALL.iter().position(|&bound| bound == held).unwrap_or(0), gamma.to_bits())
            });
            Told(one.slot.0, one.measured_at, one.incoming, chosen)
        };
        let told: Vec<Told> = self.sites.decided().iter().map(tells).collect();
        let mine = serde_json::to_vec(&told).unwrap_or_default();
        let first = self.ranks.group.gather(Kind::Decisions, &mine)?.into_iter().next().unwrap_or_default();
        if self.ranks.group.rank() == 0 {
            return Ok(());
        }
        let told: Vec<Told> = serde_json::from_slice(&first).map_err(|_| ParallelError::Apart(0))?;
        for Told(slot, measured_at, incoming, chosen) in told {
            if usize::from(slot) >= self.sites.len() {
                return Err(ParallelError::Apart(self.ranks.group.rank()).into());
            }
            let choice = |(k, bound, gamma): (i32, usize, u64)| Choice {
                k,
                held: LimitedBy::ALL.get(bound).copied().unwrap_or(LimitedBy::Threshold),
                gamma: f64::from_bits(gamma),
            };
            let verdict = chosen.map(choice).ok_or(NoDecision::Empty);
            self.sites.decide(Slot(slot), verdict, measured_at, incoming);
        }
        Ok(())
    }
}
