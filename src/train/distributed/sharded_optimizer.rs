//! An optimizer that is divided among ranks (ZeRO, stage 1): each keeps the state of its own weights, updates those, and
//! gives them to the others.
//!
//! S. Rajbhandari, J. Rasley, O. Ruwase, Y. He: *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*,
//! SC 2020. Whole parameters are divided, not slices of them: what a rank keeps is that much less than all as its largest
//! parameter allows.

use crate::{
    Error,
    distributed::{Kind, ParallelError},
    graph::{Fixed, Part, STATES},
    train::{Gradients, Trainer},
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data},
};
use pollster::block_on;
use std::cmp::Reverse;

/// Whose each parameter is; nobody's where the optimizer is whole.
#[derive(Debug, Default)]
pub(in crate::train) struct Owners(Vec<usize>);

impl Owners {
    /// The largest first, each to the rank that has least.
    fn of(lens: &[(usize, usize)], parameters: usize, ranks: usize) -> Self {
        let (mut owners, mut loads) = (vec![0; parameters], vec![0; ranks]);
        let mut order = lens.to_vec();
        order.sort_by_key(|&(id, len)| (Reverse(len), id));
        for (id, len) in order {
            let least = (0..ranks).min_by_key(|&rank| (loads[rank], rank)).unwrap_or(0);
            owners[id] = least;
            loads[least] += len;
        }
        Self(owners)
    }

    /// Whose a parameter is, if it is one rank's alone.
    pub fn owner(&self, id: usize) -> Option<usize> {
        self.0.get(id).copied()
    }
}

impl<B: Backend> Trainer<B> {
    /// Divides the optimizer among the ranks of [`Trainer::distributed`] (ZeRO, stage 1), which is to be called after this:
    /// each keeps the state of some weights only, so that two need half the memory for it. Weights, masters and gradients
    /// stay whole on all. Bits and checkpoints are the same as without; 4 bytes more travel of each weight. Devices of ranks
    /// may then be of several kinds: all have the same weights and decisions, which depend on which part ran where.
    #[must_use]
    pub const fn with_sharded_optimizer(mut self) -> Self {
        self.ranks.sharded = true;
        self
    }

    /// Whether this rank updates a parameter.
    pub(in crate::train) fn updates(&self, id: usize) -> bool {
        self.ranks.owners.owner(id).is_none_or(|owner| owner == self.ranks.group.rank())
    }

    /// Lets go of the states that are other ranks' to keep.
    pub(in crate::train) fn divide(&mut self, (rank, size): (usize, usize)) -> Result<(), Error<B::Error>> {
        if !self.ranks.sharded || size == 1 {
            return Ok(());
        }
        let lens: Vec<_> = self.parameters.weights().map(|id| (id, self.parameters.len(id))).collect();
        let owners = Owners::of(&lens, self.parameters.all.len(), size);
        let own: Vec<usize> = lens.iter().map(|&(id, _)| id).filter(|&id| owners.owner(id) == Some(rank)).collect();
        for part in STATES.into_iter().take(self.optimizer.states()) {
            let read = |&id: &usize| {
                block_on(self.exec.read(Fixed::part(id, part), Precision::Single, self.parameters.len(id)))
            };
            let kept = own.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(Error::Device)?;
            // All go first: a device may have put them into one piece of memory.
            self.exec.free(lens.iter().map(|&(id, _)| Fixed::part(id, part)));
            self.allocate_parts(part, &own).map_err(Error::Device)?;
            for (&id, values) in own.iter().zip(&kept) {
                self.exec.write(Fixed::part(id, part), Data::F32(values)).map_err(Error::Device)?;
            }
        }
        self.forget_updates();
        self.ranks.owners = owners;
        Ok(())
    }

    /// The weights that their owners have updated, on all ranks; where these round otherwise, running statistics too.
    pub(in crate::train) fn share_updated(&mut self, gradients: &Gradients) -> Result<(), Error<B::Error>> {
        if self.ranks.owners.0.is_empty() {
            return Ok(());
        }
        let statistics = gradients.statistics.iter().filter(|_| self.ranks.mixed).map(|&(id, _)| id);
        let updated: Vec<usize> = gradients.contributes.iter().copied().chain(statistics).collect();
        let mut mine = Vec::new();
        for &id in updated.iter().filter(|&&id| self.updates(id)) {
            let (buf, len) = (Fixed::part(id, Part::Master), self.parameters.len(id));
            let values = block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device)?;
            mine.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        let all = self.ranks.group.gather(Kind::Values, &mine)?;
        let mut places = vec![0; all.len()];
        for &id in &updated {
            let owner = self.ranks.owners.owner(id).unwrap_or(0);
            let begin = places[owner];
            places[owner] = begin + 4 * self.parameters.len(id);
            let bytes = all[owner].get(begin..places[owner]).ok_or(ParallelError::Apart(owner))?;
            if !self.updates(id) {
                self.exec.write(Fixed::part(id, Part::Master), Data::F32(&floats(bytes))).map_err(Error::Device)?;
            }
        }
        self.refresh_halves().map_err(Error::Device)
    }

    /// What is saved of a parameter, wherever it is: all ranks ask for the same ones.
    pub(in crate::train) fn saved_values(&self, id: usize, part: Part) -> Result<Vec<f32>, Error<B::Error>> {
        let (buf, len) = (Fixed::part(id, part), self.parameters.len(id));
        let read = || block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device);
        let Some(owner) = self.ranks.owners.owner(id).filter(|_| STATES.contains(&part)) else { return read() };
        let mine = if self.updates(id) { read()? } else { Vec::new() };
        let mine: Vec<u8> = mine.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = self.ranks.group.gather(Kind::Values, &mine)?;
        let values = all.get(owner).map(|bytes| floats(bytes)).filter(|values| values.len() == len);
        Ok(values.ok_or(ParallelError::Apart(owner))?)
    }
}

pub(in crate::train) fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_about_as_much() {
        let lens = [(0, 9), (2, 5), (3, 5), (5, 1), (6, 2)];
        let owners = Owners::of(&lens, 7, 2);
        let load =
            |rank| lens.iter().filter(|(id, _)| owners.owner(*id) == Some(rank)).map(|(_, len)| len).sum::<usize>();
        assert_eq!((load(0), load(1)), (11, 11));
        assert_eq!(Owners::default().owner(3), None);
    }
}
