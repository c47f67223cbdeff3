//! Distributed data-parallel training: each *rank* trains the same network on its share of every step.
//!
//! A step is split into the same micro-batches for any number of ranks ([`crate::Trainer::step_micro_batches`]). Weight
//! gradients of a micro-batch are sent in FP16, those of each parameter at its own exponent. Every finite FP16 value is an
//! integer multiple of 2^-24, so sums are exact in integers and do not depend on the order. Therefore the bits of the
//! weights do not depend on the number of ranks. That is [`ReduceMode::ExactF16`]; [`ReduceMode::NativeF32`] sums in f32,
//! as other frameworks do.
//!
//! Transport is pluggable: a [`Communicator`] is MPI (feature `mpi`), or [`Threads`] for tests and several devices in one
//! process. If the devices of all ranks reach one another, as GPUs do by NCCL, gradients are sent from device to device
//! ([`GradTransport`]), and everything else by the communicator.
//!
//! ```
//! use gradscale::{Cpu, Input, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd, distributed::{Group, Threads}};
//!
//! let train = |group: Group| {
//!     let mut parameters = Parameters::seeded(0);
//!     let net = Linear::new(&mut parameters.at("net"), 2, 2);
//!     let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?.join_group(group)?;
//!     for _ in 0..5 {
//!         trainer.step_micro_batches(4, |trainer, index| {
//!             let (x, label) = ([index as f32, 1.0], [u8::from(index > 1)]);
//!             trainer.backward([Input::f32([1, 2], &x), Input::u8([1], &label)], |[x, label]| net.forward(x).cross_entropy(label))
//!         })?;
//!     }
//!     Ok::<_, gradscale::Error>(trainer.parameter("net.weight")?.data)
//! };
//! let single = train(Group::single_rank())?;
//! let [first, second] = Threads::world(2).try_into().expect("two");
//! let second = std::thread::spawn(move || train(Group::new(second)));
//! assert_eq!(train(Group::new(first))?, single);
//! assert_eq!(second.join().expect("a rank")?, single);
//! # Ok::<(), gradscale::Error>(())
//! ```

mod benchmark;
mod comm_thread;
mod exact_sum;
mod group;
mod half_codec;
mod message;
mod mode;
mod moments;
mod transport;

pub use benchmark::ReduceTimings;
pub use group::Group;
pub use message::Traffic;
pub use mode::{Overlap, ReduceMode};
pub use moments::BatchNormScope;
#[cfg(feature = "mpi")]
pub use transport::Mpi;
pub use transport::Threads;

pub(crate) use comm_thread::PendingCollective;
pub(crate) use exact_sum::{GradSums, ReducedGrads, local_micro_batches};
pub(crate) use half_codec::{choose_exponent, fits_f16};
pub(crate) use message::MessageTag;
pub(crate) use moments::{LocalStats, combine_moments, gather_stats, negated_means, with_unbiased_variance};

use std::fmt;

/// Maximum number of micro-batches of a step, because the exact sums of this number of FP16 values fit 53 bits.
pub const MAX_MICRO_BATCHES: u32 = 4096;

/// Collectives that a training needs. All ranks call the same ones in the same order; [`Group`] ensures that.
pub trait Communicator: Send {
    /// Returns the index of this rank among those of the communicator, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks that the communicator connects.
    fn size(&self) -> usize;

    /// Returns the messages of all ranks, in the order of the ranks; lengths may differ.
    ///
    /// # Errors
    /// A rank that cannot be reached.
    fn all_gather(&mut self, local: &[u8]) -> Result<Vec<Vec<u8>>, DistributedError>;

    /// Sends each rank the message at its index, and returns what each rank sent to this one; lengths may differ.
    ///
    /// # Errors
    /// A rank that cannot be reached.
    fn all_to_all(&mut self, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, DistributedError>;

    /// Sums the values of all ranks in place; each rank has as many, and all get the same sums. The default adds in the
    /// order of the ranks. Only [`ReduceMode::NativeF32`] needs it.
    ///
    /// # Errors
    /// A rank that cannot be reached, or has another number of values.
    fn all_reduce(&mut self, values: &mut Vec<f32>) -> Result<(), DistributedError> {
        let local: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let messages = self.all_gather(&local)?;
        values.fill(0.0);
        for (rank, bytes) in messages.iter().enumerate() {
            if bytes.len() != local.len() {
                return Err(DistributedError::CollectiveMismatch(rank));
            }
            for (sum, word) in values.iter_mut().zip(bytes.chunks_exact(4)) {
                *sum += f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            }
        }
        Ok(())
    }
}

/// Transport of gradients between ranks: through the host, or between devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GradTransport {
    /// Through host memory, by the [`Communicator`]. If device transport was tried, the reason why the first rank failed.
    Host(Option<String>),
    /// From device to device, by the library of this name. Everything else uses the [`Communicator`].
    Device(&'static str),
}

/// Error of a training of several ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DistributedError {
    /// A rank has ended without a message.
    PeerLost(usize),
    /// Ranks did not respond within the time-out: they are dead, hang, or are busy. Empty if all ranks respond and wait for
    /// one another.
    Timeout {
        /// Indices of the ranks that have not answered.
        ranks: Vec<usize>,
        /// Time in seconds after which the collective was given up.
        seconds: u64,
    },
    /// A rank has reported that it cannot continue.
    RankFailed {
        /// Index of the rank that cannot continue.
        rank: usize,
        /// Error message of the rank that cannot continue.
        reason: String,
    },
    /// A setting of a rank differs from that of rank 0.
    ConfigMismatch {
        /// Index of the rank with another setting.
        rank: usize,
        /// Name of the setting, for example "network" or "version".
        name: String,
        /// Value of the setting on that rank.
        value: String,
        /// Value of the setting on rank 0.
        expected: String,
    },
    /// A rank runs another collective: its networks or steps differ from those of this rank.
    CollectiveMismatch(usize),
    /// The number of micro-batches is below that of ranks, or above [`MAX_MICRO_BATCHES`].
    MicroBatchCount {
        /// Number of micro-batches that was set, which is outside the allowed range.
        micro_batches: u32,
        /// Number of ranks of the group, which is the minimum.
        ranks: usize,
    },
    /// Batch norm over all ranks with another number of micro-batches than one per rank.
    SyncBatchNormMicroBatches {
        /// Number of micro-batches that was set, which is not one per rank.
        micro_batches: u32,
        /// Number of ranks of the group, which the number of micro-batches must equal.
        ranks: usize,
    },
    /// A micro-batch cannot be used by the step, for this reason.
    InvalidMicroBatch(&'static str),
    /// Error message of the transport, for example of MPI.
    Transport(String),
}

impl fmt::Display for DistributedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerLost(rank) => write!(f, "rank {rank} has ended"),
            Self::Timeout { ranks, seconds } => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                match &ranks[..] {
                    [] => write!(f, "no rank has finished a collective for {seconds} s"),
                    [rank] => write!(f, "rank {rank} has not answered for {seconds} s"),
                    ranks => write!(f, "ranks {} have not answered for {seconds} s", ranks.join(", ")),
                }
            }
            Self::RankFailed { rank, reason } => write!(f, "rank {rank}: {reason}"),
            Self::ConfigMismatch { rank, name, value, expected } => {
                write!(f, "rank {rank} has another {name} than rank 0: {value}, not {expected}")
            }
            Self::CollectiveMismatch(rank) => {
                write!(f, "rank {rank} and this one run different steps, or different networks")
            }
            Self::MicroBatchCount { micro_batches, ranks }
                if usize::try_from(*micro_batches).is_ok_and(|count| count < *ranks) =>
            {
                write!(f, "{micro_batches} micro-batches for {ranks} ranks; each rank needs at least one")
            }
            Self::MicroBatchCount { micro_batches, .. } => {
                write!(f, "{micro_batches} micro-batches; exact sums need 1 to {MAX_MICRO_BATCHES}")
            }
            Self::SyncBatchNormMicroBatches { micro_batches, ranks } => {
                write!(
                    f,
                    "{micro_batches} micro-batches; batch norm over all ranks needs one for each of {ranks} ranks"
                )
            }
            Self::InvalidMicroBatch(reason) => write!(f, "a micro-batch {reason}"),
            Self::Transport(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for DistributedError {}
