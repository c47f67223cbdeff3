//! Synchronisation points of a program: where ranks combine batch statistics, or a bucket of gradients is complete.

use super::{BufferId, Fixed, ParamTensor, Program, Purpose};
use std::{collections::HashMap, ops::Range};

/// Settings of a training of several ranks that change a compiled program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DistributedPlan {
    /// True if batch norm computes its statistics over the batches of all ranks (`SyncBatchNorm`).
    pub sync_batch_norm: bool,
    /// Minimum number of weights of a gradient bucket; `None` if gradients are sent after the backward pass.
    pub bucket_size: Option<usize>,
}

/// Reason why ranks synchronise at a point of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncReason {
    /// Gradients of a bucket: all of the bucket with this index are complete.
    Bucket(usize),
    /// Batch statistics: ranks combine those of the program's [`StatsSync`] with this index.
    BatchStats(usize),
}

/// Synchronisation point of a program: position between two launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncPoint {
    /// Index of the first launch after the synchronisation point.
    pub before: usize,
    pub reason: SyncReason,
}

/// Bucket of gradients that are reduced together: its weights, in the order in which their gradients are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BucketPlan {
    /// Index of the first launch that runs after all gradients of the bucket are complete.
    pub before: usize,
    pub weights: Vec<usize>,
}

/// Synchronisation of batch statistics over all ranks at one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StatsSync {
    /// Index of the first launch after the synchronisation.
    pub before: usize,
    /// Index of the batch-norm layer in the trace.
    pub node: usize,
    pub channels: usize,
    /// Number of values of each channel in the batch of this rank.
    pub count: ValueCount,
    pub payload: SyncPayload,
}

/// Number of values of a channel in a rank's batch: known, or computed on the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueCount {
    Static(u32),
    /// Count stored as f32 on the device, because it depends on the batch.
    OnDevice(BufferId),
}

/// Buffers (f32) with the batch statistics of a rank, which those of all ranks replace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SyncPayload {
    /// Forward pass: means and biased variances, `[2, channels]`; `unbiased` receives means and unbiased variances.
    Moments { biased: BufferId, unbiased: Option<BufferId> },
    /// Backward pass: two sums per channel, which the negated means over the values of all ranks replace.
    Sums([BufferId; 2]),
}

impl StatsSync {
    /// Returns all buffers that the synchronisation reads or writes.
    pub fn buffers(&mut self) -> impl Iterator<Item = &mut BufferId> {
        let count = match &mut self.count {
            ValueCount::Static(_) => None,
            ValueCount::OnDevice(buf) => Some(buf),
        };
        let payload = match &mut self.payload {
            SyncPayload::Moments { biased, unbiased } => [Some(biased), unbiased.as_mut()],
            SyncPayload::Sums([first, second]) => [Some(first), Some(second)],
        };
        count.into_iter().chain(payload.into_iter().flatten())
    }
}

impl Program {
    /// Returns the number of the program's segments: launches between synchronisation points.
    pub const fn segment_count(&self) -> usize {
        self.sync_points.len() + 1
    }

    /// Returns the range of launches of the program's segment.
    pub fn segment(&self, segment: usize) -> Range<usize> {
        let before = |point: &SyncPoint| point.before;
        let start = segment.checked_sub(1).and_then(|last| self.sync_points.get(last)).map_or(0, before);
        start..self.sync_points.get(segment).map_or(self.launches.len(), before)
    }

    /// Assigns gradients to buckets, if they are sent during the backward pass, and inserts all synchronisation points.
    pub(super) fn insert_sync_points(&mut self, len: impl Fn(usize) -> usize) {
        if let (Some(min_size), Purpose::Train { later: false }) = (self.distributed.bucket_size, self.purpose) {
            self.buckets = assign_buckets(self.gradient_ready_order(), min_size, len);
        }
        // The last bucket is complete when the program ends, so it needs no point of its own.
        let early = self.buckets.iter().take(self.buckets.len().saturating_sub(1)).enumerate();
        let buckets = early.map(|(i, bucket)| SyncPoint { before: bucket.before, reason: SyncReason::Bucket(i) });
        let stats = self.stats_syncs.iter().enumerate();
        let stats = stats.map(|(i, sync)| SyncPoint { before: sync.before, reason: SyncReason::BatchStats(i) });
        self.sync_points = buckets.chain(stats).collect();
        self.sync_points.sort_by_key(|point| point.before);
    }

    /// Returns the weights in the order in which their gradients are complete, each with the last launch that adds to it.
    fn gradient_ready_order(&self) -> Vec<(usize, usize)> {
        let gradient = |&id: &usize| (Fixed::tensor(id, ParamTensor::Gradient), id);
        let weights: HashMap<BufferId, usize> = self.contributes.iter().map(gradient).collect();
        let mut last_launches: HashMap<usize, usize> = HashMap::new();
        for (index, launch) in self.launches.iter().enumerate() {
            last_launches.extend(launch.buffers().iter().filter_map(|buf| weights.get(buf)).map(|&id| (id, index)));
        }
        let mut order: Vec<_> = last_launches.into_iter().map(|(id, index)| (index, id)).collect();
        order.sort_unstable();
        order
    }
}

/// Fills buckets in the given order until each has at least `min_size` values; the last one may have fewer.
fn assign_buckets(ready_order: Vec<(usize, usize)>, min_size: usize, len: impl Fn(usize) -> usize) -> Vec<BucketPlan> {
    let mut buckets: Vec<BucketPlan> = Vec::new();
    let mut missing = 0;
    for (launch, id) in ready_order {
        match buckets.last_mut().filter(|_| missing > 0) {
            Some(bucket) => {
                bucket.weights.push(id);
                bucket.before = launch + 1;
            }
            None => {
                missing = min_size;
                buckets.push(BucketPlan { before: launch + 1, weights: vec![id] });
            }
        }
        missing = missing.saturating_sub(len(id));
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_full_and_in_order() {
        let complete = vec![(3, 7), (3, 9), (5, 2), (8, 1), (8, 4)];
        let assigned = |min_size| {
            let all = assign_buckets(complete.clone(), min_size, |id| if id == 2 { 100 } else { 10 });
            all.into_iter().map(|bucket| (bucket.before, bucket.weights)).collect::<Vec<_>>()
        };
        assert_eq!(assigned(20), [(4, vec![7, 9]), (6, vec![2]), (9, vec![1, 4])]);
        assert_eq!(assigned(21), [(6, vec![7, 9, 2]), (9, vec![1, 4])]);
        assert_eq!(assigned(1), [(4, vec![7]), (4, vec![9]), (6, vec![2]), (9, vec![1]), (9, vec![4])]);
        assert_eq!(assigned(1000), [(9, vec![7, 9, 2, 1, 4])]);
        assert!(assign_buckets(Vec::new(), 5, |_| 1).is_empty());
    }
}
