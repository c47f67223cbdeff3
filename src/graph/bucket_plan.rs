//! Buckets of gradients for an overlapped all-reduce, and the insertion of all synchronisation points into a program.

use super::{BucketPlan, BufferId, Fixed, ParamTensor, Program, Purpose, SyncPoint, SyncReason};
use std::collections::HashMap;

impl Program {
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
