//! Messages between ranks: their tags, and the traffic that they cause. A rank that fails sends [`MessageTag::Failed`] with
//! its reason, which ends the other ranks.

use std::time::Duration;

/// Type of a message: its first byte. A rank that runs another part of the program is detected by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageTag {
    /// Message with the reason why the sending rank cannot continue.
    Failed = 0,
    /// Message with settings and other values that ranks compare.
    Config = 1,
    /// Message with the initial values of parameters.
    ParamInit = 2,
    /// Message with exponents that were decided inside the step.
    ScaleDecisions = 3,
    /// Message with the statistics of an attempt at a step.
    StepReport = 4,
    /// Message with the mean gradients of a bucket.
    GradMean = 5,
    /// Message at the end of a training.
    Finish = 6,
    /// Message with the batch statistics of a batch norm.
    BatchStats = 7,
    /// Message with the identity of the next bucket of gradients.
    BucketHeader = 8,
}

/// Bytes and time of communication of this rank so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Number of bytes that this rank has sent to other ranks.
    pub sent_bytes: u64,
    /// Number of bytes that this rank has received from other ranks.
    pub received_bytes: u64,
    /// Time that this rank has spent in collectives, including the wait for slower ranks.
    pub comm_time: Duration,
    /// Exposed part of the time in collectives, during which this rank was blocked. The rest overlapped with
    /// computation.
    pub exposed_time: Duration,
}

impl Traffic {
    /// Returns the time in collectives that overlapped with this rank's own computation.
    #[must_use]
    pub const fn overlapped_time(&self) -> Duration {
        self.comm_time.saturating_sub(self.exposed_time)
    }
}
