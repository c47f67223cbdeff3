//! Synchronisation points of a program: where ranks combine batch statistics, or a bucket of gradients is complete.

use super::BufferId;

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
