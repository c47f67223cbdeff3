//! Sharded optimizer (ZeRO stage 1): each rank stores the optimizer states of its own weights, updates these weights, and
//! sends them to the other ranks.
//!
//! S. Rajbhandari, J. Rasley, O. Ruwase, Y. He: *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models*,
//! SC 2020. Here the unit of a shard is a parameter, not a slice of one, so the largest parameter limits the balance.

use crate::{
    Error,
    distributed::{DistributedError, MessageTag},
    graph::{Fixed, ParamTensor, STATES},
    train::{Gradients, Trainer},
};
use gradscale_core::{
    amp::Precision,
    backend::{Backend, Data, UpdateGuard},
};
use pollster::block_on;
use std::cmp::Reverse;

/// Owner of each parameter; empty if the optimizer is not sharded.
#[derive(Debug, Default)]
pub(in crate::train) struct ShardMap(Vec<usize>);

impl ShardMap {
    /// Assigns parameters in descending order of size, each to the rank with the least load.
    fn assign(lens: &[(usize, usize)], parameters: usize, ranks: usize) -> Self {
        let (mut owners, mut loads) = (vec![0; parameters], vec![0; ranks]);
        let mut order = lens.to_vec();
        order.sort_by_key(|&(id, len)| (Reverse(len), id));
        for (id, len) in order {
            let rank = (0..ranks).min_by_key(|&rank| (loads[rank], rank)).unwrap_or(0);
            owners[id] = rank;
            loads[rank] += len;
        }
        Self(owners)
    }

    /// Returns true if the optimizer is sharded.
    pub fn is_sharded(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns the owner of a parameter; `None` if the optimizer is not sharded.
    pub fn owner(&self, id: usize) -> Option<usize> {
        self.0.get(id).copied()
    }
}

impl<B: Backend> Trainer<B> {
    /// Returns `true` if this rank updates a parameter.
    pub(in crate::train) fn is_updated_here(&self, id: usize) -> bool {
        self.ranks.shard_map.owner(id).is_none_or(|owner| owner == self.ranks.group.rank())
    }

    /// Frees the optimizer states that other ranks store.
    pub(in crate::train) fn shard_states(&mut self, (rank, size): (usize, usize)) -> Result<(), Error<B::Error>> {
        if !self.ranks.is_sharded || size == 1 {
            return Ok(());
        }
        let lens: Vec<_> = self.parameters.weights().map(|id| (id, self.parameters.len(id))).collect();
        let owners = ShardMap::assign(&lens, self.parameters.all.len(), size);
        let own: Vec<usize> = lens.iter().map(|&(id, _)| id).filter(|&id| owners.owner(id) == Some(rank)).collect();
        for part in STATES.into_iter().take(self.optimizer.states()) {
            let read = |&id: &usize| {
                let len = self.part_shape(id, part).len();
                block_on(self.exec.read(Fixed::tensor(id, part), Precision::Single, len))
            };
            let kept = own.iter().map(read).collect::<Result<Vec<_>, _>>().map_err(Error::Device)?;
            // All states are freed first, because a device may have allocated them as one block.
            self.exec.free(lens.iter().map(|&(id, _)| Fixed::tensor(id, part)));
            self.allocate_tensors(part, &own).map_err(Error::Device)?;
            for (&id, values) in own.iter().zip(&kept) {
                self.exec.write(Fixed::tensor(id, part), Data::F32(values)).map_err(Error::Device)?;
            }
        }
        self.forget_updates();
        self.ranks.shard_map = owners;
        Ok(())
    }

    /// Broadcasts weights from their owners to all ranks. With devices of several kinds, running statistics too.
    pub(in crate::train) fn broadcast_updated(&mut self, gradients: &Gradients) -> Result<(), Error<B::Error>> {
        if !self.ranks.shard_map.is_sharded() {
            return Ok(());
        }
        let statistics = gradients.statistics.iter().filter(|_| self.ranks.has_mixed_devices).map(|&(id, _)| id);
        let updated: Vec<usize> = gradients.contributes.iter().copied().chain(statistics).collect();
        let mut local = Vec::new();
        for &id in updated.iter().filter(|&&id| self.is_updated_here(id)) {
            let (buf, len) = (Fixed::tensor(id, ParamTensor::Master), self.parameters.len(id));
            let values = block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device)?;
            local.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        let messages = self.ranks.group.all_gather(MessageTag::ParamInit, &local)?;
        let mut offsets = vec![0; messages.len()];
        for &id in &updated {
            let owner = self.ranks.shard_map.owner(id).unwrap_or(0);
            let begin = offsets[owner];
            offsets[owner] = begin + 4 * self.parameters.len(id);
            let bytes =
                messages[owner].get(begin..offsets[owner]).ok_or(DistributedError::CollectiveMismatch(owner))?;
            if !self.is_updated_here(id) {
                self.exec
                    .write(Fixed::tensor(id, ParamTensor::Master), Data::F32(&decode_f32s(bytes)))
                    .map_err(Error::Device)?;
            }
        }
        let average = self.average_update(&gradients.contributes, UpdateGuard::default());
        average.iter().try_for_each(|operation| self.exec.run(operation)).map_err(Error::Device)?;
        self.refresh_halves().map_err(Error::Device)
    }

    /// Returns a saved tensor of a parameter, from its owner if states are sharded. All ranks must call it for the same ones.
    pub(in crate::train) fn gather_saved_values(
        &self, id: usize, part: ParamTensor,
    ) -> Result<Vec<f32>, Error<B::Error>> {
        let buf = if part == ParamTensor::Average { self.average_or_master(id) } else { Fixed::tensor(id, part) };
        let len = self.part_shape(id, part).len();
        let read = || block_on(self.exec.read(buf, Precision::Single, len)).map_err(Error::Device);
        let Some(owner) = self.ranks.shard_map.owner(id).filter(|_| STATES.contains(&part)) else { return read() };
        let local = if self.is_updated_here(id) { read()? } else { Vec::new() };
        let local: Vec<u8> = local.iter().flat_map(|value| value.to_le_bytes()).collect();
        let messages = self.ranks.group.all_gather(MessageTag::ParamInit, &local)?;
        let values = messages.get(owner).map(|bytes| decode_f32s(bytes)).filter(|values| values.len() == len);
        Ok(values.ok_or(DistributedError::CollectiveMismatch(owner))?)
    }
}

/// Decodes the little-endian f32 values of a message from another rank.
pub(in crate::train) fn decode_f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_balanced() {
        let lens = [(0, 9), (2, 5), (3, 5), (5, 1), (6, 2)];
        let owners = ShardMap::assign(&lens, 7, 2);
        let load =
            |rank| lens.iter().filter(|(id, _)| owners.owner(*id) == Some(rank)).map(|(_, len)| len).sum::<usize>();
        assert_eq!((load(0), load(1)), (11, 11));
        assert_eq!(ShardMap::default().owner(3), None);
    }
}
