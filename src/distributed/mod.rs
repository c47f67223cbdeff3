//! Several machines, or several devices of one: each *rank* trains the same network on its share of every step.
//!
//! A step is cut into the same parts whatever the number of ranks ([`crate::Trainer::step_parts`]). The weight gradients
//! of a part travel as halves, each parameter's at an exponent of its own; every finite half is a whole multiple of
//! 2^-24, so their sums are exact in integers and do not depend on any order. So the weights do not depend on the number
//! of ranks: not in a single bit. That is [`Exchange::Exact`]; [`Exchange::Fast`] adds in f32, as others do.
//!
//! Transport is not ours: a [`Communicator`] is MPI (feature `mpi`) or, for tests and several devices in one process,
//! [`Threads`]. Where the devices of all ranks reach one another, as GPUs do by NCCL, gradients go from device to device
//! ([`Route`]), and all else by the communicator.
//!
//! ```
//! use gradscale::{Cpu, Input, Method, Parameters, Trainer, nn::{Linear, Module}, optim::Sgd, distributed::{Group, Threads}};
//!
//! let train = |group: Group| {
//!     let mut parameters = Parameters::seeded(0);
//!     let net = Linear::new(&mut parameters.at("net"), 2, 2);
//!     let mut trainer = Trainer::new(Cpu::new(1)?, parameters, Sgd::new(0.5), Method::mixed())?.distributed(group)?;
//!     for _ in 0..5 {
//!         trainer.step_parts(4, |trainer, part| {
//!             let (x, label) = ([part as f32, 1.0], [u8::from(part > 1)]);
//!             trainer.backward([Input::f32([1, 2], &x), Input::u8([1], &label)], |[x, label]| net.forward(x).cross_entropy(label))
//!         })?;
//!     }
//!     Ok::<_, gradscale::Error>(trainer.parameter("net.weight")?.data)
//! };
//! let alone = train(Group::alone())?;
//! let [first, second] = Threads::world(2).try_into().expect("two");
//! let second = std::thread::spawn(move || train(Group::new(second)));
//! assert_eq!(train(Group::new(first))?, alone);
//! assert_eq!(second.join().expect("a rank")?, alone);
//! # Ok::<(), gradscale::Error>(())
//! ```

mod comm_thread;
mod exact_sum;
mod group;
mod half_codec;
mod mode;
mod moments;
mod transport;

pub use group::{Group, Traffic};
pub use mode::{Exchange, Measured, Overlap};
pub use moments::BatchStatistics;
#[cfg(feature = "mpi")]
pub use transport::Mpi;
pub use transport::Threads;

pub(crate) use comm_thread::Pending;
pub(crate) use exact_sum::{Means, Sums, share};
pub(crate) use group::Kind;
pub(crate) use half_codec::{exponent, fits};
pub(crate) use moments::{Share, less_means, moments, shares, unbiased};

use std::fmt;

/// Parts of a step, at most: their sums are exact.
pub const MOST_PARTS: u32 = 4096;

/// How ranks reach one another: the exchanges that a training needs. All ranks call the same ones in the same order;
/// [`Group`] sees to that.
pub trait Communicator: Send {
    /// This one's number, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// What every rank gave, by rank; lengths may differ.
    ///
    /// # Errors
    /// A rank that cannot be reached.
    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError>;

    /// Sends to each rank what stands at its number, and returns what each rank sent to this one; lengths may differ.
    ///
    /// # Errors
    /// A rank that cannot be reached.
    fn all_to_all(&mut self, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ParallelError>;

    /// Adds up what all ranks gave, as many values each: all get the same sums. In the order of the ranks, unless there is
    /// something faster; needed by [`Exchange::Fast`] alone.
    ///
    /// # Errors
    /// A rank that cannot be reached, or has given another number of values.
    fn all_reduce(&mut self, values: &mut Vec<f32>) -> Result<(), ParallelError> {
        let mine: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = self.all_gather(&mine)?;
        values.fill(0.0);
        for (rank, bytes) in all.iter().enumerate() {
            if bytes.len() != mine.len() {
                return Err(ParallelError::Apart(rank));
            }
            for (sum, four) in values.iter_mut().zip(bytes.chunks_exact(4)) {
                *sum += f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
            }
        }
        Ok(())
    }
}

/// How gradients get from rank to rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the memory of the hosts, by the [`Communicator`]; why not from device to device, if that was tried: in the
    /// words of the first rank where it failed.
    Host(Option<String>),
    /// From device to device, by what has this name. Everything else goes by the [`Communicator`].
    Devices(&'static str),
}

/// Why ranks cannot train together, or not any more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParallelError {
    /// A rank is gone, without a word.
    Gone(usize),
    /// Ranks that did not come for as long as they are waited for: they are dead, hang, or are busy elsewhere. None where
    /// all are there, and wait for one another.
    Silent {
        /// Which ones.
        ranks: Vec<usize>,
        /// How long they were waited for.
        seconds: u64,
    },
    /// A rank cannot go on.
    Failed {
        /// Which one.
        rank: usize,
        /// Why, in its words.
        why: String,
    },
    /// A rank was told something else than rank 0.
    Other {
        /// Which one.
        rank: usize,
        /// What differs.
        what: String,
        /// What it is there.
        there: String,
        /// What it is on rank 0.
        first: String,
    },
    /// A rank is elsewhere in the program: its networks, or its steps, are not those of this one.
    Apart(usize),
    /// Fewer parts than ranks, or more than their sums are exact for.
    Parts {
        /// Parts of a step.
        parts: u32,
        /// Ranks.
        ranks: usize,
    },
    /// Batch norm is over the batches of all ranks, and there is not one part for each.
    BatchStatistics {
        /// Parts of a step.
        parts: u32,
        /// Ranks.
        ranks: usize,
    },
    /// What a part of a step cannot be, in words.
    Part(&'static str),
    /// The transport's own words.
    Transport(String),
}

impl fmt::Display for ParallelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(rank) => write!(f, "rank {rank} is gone"),
            Self::Silent { ranks, seconds } => {
                let ranks: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                match &ranks[..] {
                    [] => write!(f, "all ranks have waited for one another for {seconds} s"),
                    [rank] => write!(f, "rank {rank} has not answered for {seconds} s"),
                    ranks => write!(f, "ranks {} have not answered for {seconds} s", ranks.join(", ")),
                }
            }
            Self::Failed { rank, why } => write!(f, "rank {rank}: {why}"),
            Self::Other { rank, what, there, first } => {
                write!(f, "rank {rank} has another {what} than rank 0: {there}, not {first}")
            }
            Self::Apart(rank) => write!(f, "rank {rank} and this one run different steps, or different networks"),
            Self::Parts { parts, ranks } if usize::try_from(*parts).is_ok_and(|parts| parts < *ranks) => {
                write!(f, "{parts} micro-batches for {ranks} ranks: each rank takes at least one")
            }
            Self::Parts { parts, .. } => write!(f, "{parts} micro-batches: 1 to {MOST_PARTS} can be added exactly"),
            Self::BatchStatistics { parts, ranks } => {
                write!(f, "{parts} micro-batches: batch norm over all ranks takes as many as there are ranks, {ranks}")
            }
            Self::Part(words) => write!(f, "a part of a step {words}"),
            Self::Transport(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for ParallelError {}
