//! Group of ranks: collectives that check whether all ranks run the same one. If a rank fails, [`Group::abort`] sends
//! `MessageTag::Failed` with the reason, which ends the other ranks.

use super::{
    Communicator, DistributedError, GradSums, MessageTag, ReducedGrads, Traffic,
    comm_thread::{CommChannel, CommThread, Health, PendingCollective},
    exact_sum,
};
use std::{fmt, sync::Arc, time::Instant};

/// Maximum number of bytes of one message of a broadcast: far below 2^31 − 1, the largest count of MPI.
const BROADCAST_CHUNK_BYTES: usize = 1 << 28;

/// Ranks of a training, as one of them sees them (a *process group* in `torch.distributed`). Clones are the same rank.
#[doc(alias = "ProcessGroup")]
#[derive(Clone)]
pub struct Group {
    /// Communication thread of this rank; `None` for a single rank.
    thread: Option<Arc<CommThread>>,
    rank: usize,
    size: usize,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Group {
    /// Creates a group of one rank, which communicates with no other.
    #[must_use]
    pub const fn single_rank() -> Self {
        Self { thread: None, rank: 0, size: 1 }
    }

    /// Creates the group of the ranks that a communicator connects.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        let (rank, size) = (communicator.rank(), communicator.size());
        let channel = CommChannel {
            communicator: Some(Box::new(communicator)),
            rank,
            other_ranks: size - 1,
            ..CommChannel::default()
        };
        Self { thread: Some(Arc::new(CommThread::new(channel))), rank, size }
    }

    /// Returns `true` if there is no communicator, not even one of a world of size 1.
    pub(crate) const fn has_no_communicator(&self) -> bool {
        self.thread.is_none()
    }

    /// Returns the index of this rank in the group, from 0.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks of the group.
    #[must_use]
    #[doc(alias = "world_size")]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Returns bytes and time of this rank's communication so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.thread.as_ref().map_or_else(Traffic::default, |thread| thread.traffic())
    }

    /// Checks that a setting is equal on all ranks. `name` is its name in the error.
    ///
    /// # Errors
    /// [`DistributedError::ConfigMismatch`] with the first rank whose value differs from that of rank 0; all ranks return
    /// the same error.
    pub fn check_equal(&self, name: &str, local: &str) -> Result<(), DistributedError> {
        let values = self.all_gather(MessageTag::Config, local.as_bytes())?;
        let Some((first, others)) = values.split_first() else { return Ok(()) };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match others.iter().position(|other| other != first) {
            None => Ok(()),
            Some(index) => Err(DistributedError::ConfigMismatch {
                rank: index + 1,
                name: name.to_owned(),
                value: text(&others[index]),
                expected: text(first),
            }),
        }
    }

    /// Sends the other ranks the reason why this one cannot continue: their next collective returns it as an error. Sends
    /// nothing if they have received a failure before. Returns whether all ranks have received it.
    pub fn abort(&self, reason: &str) -> bool {
        // Pending collectives are not awaited any more.
        let health = self.thread.as_ref().and_then(|thread| {
            thread.inspect(|channel| {
                channel.deferred_error = None;
                channel.health
            })
        });
        match health {
            Some(Health::Ok) => {
                let sent = self.all_gather(MessageTag::Failed, reason.as_bytes());
                matches!(sent, Err(DistributedError::RankFailed { .. }))
            }
            Some(Health::PeerFailed) => true,
            Some(Health::Disconnected) | None => false,
        }
    }

    /// Returns the first responsive rank if others were found to be unresponsive ([`DistributedError::Timeout`]). It is the
    /// one that should report the error, because all responsive ranks have detected it.
    #[must_use]
    pub fn error_reporter_rank(&self) -> Option<usize> {
        let unresponsive = self.thread.as_ref()?.inspect(|channel| channel.unresponsive_ranks.clone())?;
        (0..self.size).find(|rank| !unresponsive.contains(rank)).filter(|_| !unresponsive.is_empty())
    }

    /// Waits until all ranks have reached the end of the training.
    ///
    /// # Errors
    /// A rank that failed or was lost before the end.
    pub fn finish(&self) -> Result<(), DistributedError> {
        self.all_gather(MessageTag::Finish, &[]).map(drop)
    }

    /// Returns the integers of all ranks, in the order of the ranks.
    ///
    /// # Errors
    /// A rank that is lost or has failed.
    pub fn all_gather_u64(&self, local: u64) -> Result<Vec<u64>, DistributedError> {
        let messages = self.all_gather(MessageTag::Config, &local.to_le_bytes())?;
        let decode = |(rank, bytes): (usize, Vec<u8>)| {
            bytes.try_into().map(u64::from_le_bytes).map_err(|_| DistributedError::CollectiveMismatch(rank))
        };
        messages.into_iter().enumerate().map(decode).collect()
    }

    /// Returns the bytes of rank 0 on all ranks. The argument of other ranks is ignored.
    ///
    /// # Errors
    /// A rank that is lost or has failed.
    pub fn broadcast_from_rank0(&self, local: &[u8]) -> Result<Vec<u8>, DistributedError> {
        let local = if self.rank == 0 { local } else { &[] };
        let mut chunks = local.chunks(BROADCAST_CHUNK_BYTES);
        let mut received = Vec::new();
        loop {
            let chunk = chunks.next().unwrap_or_default();
            let chunk = self.all_gather(MessageTag::Config, chunk)?.into_iter().next().unwrap_or_default();
            received.extend_from_slice(&chunk);
            if chunk.len() < BROADCAST_CHUNK_BYTES {
                return Ok(received);
            }
        }
    }

    /// Returns the messages of all ranks, in the order of the ranks.
    ///
    /// # Errors
    /// A rank that is lost, has failed, or sends a message with another tag.
    pub(crate) fn all_gather(&self, tag: MessageTag, local: &[u8]) -> Result<Vec<Vec<u8>>, DistributedError> {
        let Some(thread) = &self.thread else { return Ok(vec![local.to_vec()]) };
        let local = local.to_vec();
        thread.run_blocking(move |channel| channel.all_gather(tag, &local))
    }

    /// Returns the mean over all micro-batches of all ranks. Call it only directly after a gather, because its first
    /// message has no tag.
    ///
    /// # Errors
    /// A rank that is lost.
    pub(crate) fn all_reduce_mean(&self, sums: GradSums, micro_batches: u32) -> Result<ReducedGrads, DistributedError> {
        match &self.thread {
            Some(thread) => {
                thread.run_blocking(move |channel| exact_sum::all_reduce_mean(channel, sums, micro_batches))
            }
            None => exact_sum::all_reduce_mean(&mut CommChannel::default(), sums, micro_batches),
        }
    }

    /// Starts [`Group::all_reduce_mean`] without waiting for it. A header with the digest of the bucket comes first, so
    /// that a failed rank is reported and mismatched buckets are detected.
    pub(crate) fn start_all_reduce_mean(
        &self, bucket_digest: u32, sums: GradSums, micro_batches: u32,
    ) -> PendingCollective<ReducedGrads> {
        PendingCollective::start(self.thread.clone(), move |channel| {
            let local = bucket_digest.to_le_bytes();
            let headers = channel.all_gather(MessageTag::BucketHeader, &local)?;
            match headers.iter().position(|header| *header != local) {
                Some(rank) => Err(DistributedError::CollectiveMismatch(rank)),
                None => exact_sum::all_reduce_mean(channel, sums, micro_batches),
            }
        })
    }

    /// Adds communication between devices since `start`, `bytes` in each direction, to the traffic.
    pub(crate) fn add_device_traffic(&self, bytes: u64, start: Instant) {
        if let Some(thread) = &self.thread {
            thread.inspect(move |channel| channel.add_device_traffic(bytes, start));
        }
    }
}
