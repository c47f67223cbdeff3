//! Ranks of MPI: processes that `mpirun`, `srun` or a batch system has started, on one machine or several.
//!
//! MPI wants to be called by the thread that began it, and handles of its communicators stay there; so it has a thread of
//! its own, which lives as long as this does.

mod timeout;

use crate::distributed::{Communicator, ParallelError};
use ::mpi::{
    Count, Threading,
    collective::{CommunicatorCollectives, SystemOperation},
    datatype::{Partition, PartitionMut},
    request::scope,
    topology::Communicator as _,
};
use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
    time::Duration,
};
use timeout::Patience;

/// What the thread is asked.
enum Asked {
    /// One message is for all.
    Same(Vec<u8>),
    /// Each rank gets its own.
    Each(Vec<Vec<u8>>),
    /// To be added.
    Sum(Vec<f32>),
}

/// What it answers.
enum Answer {
    Bytes(Vec<Vec<u8>>),
    Sum(Vec<f32>),
}

/// All ranks of the world that this process was started in.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    /// How long others are waited for.
    limit: Duration,
    /// Closed by the end of this.
    ask: Option<Sender<(Asked, Duration)>>,
    answers: Receiver<Result<Answer, ParallelError>>,
    thread: Option<JoinHandle<()>>,
}

impl Mpi {
    /// How long a rank is waited for, unless told: what PyTorch gives NCCL.
    pub const LIMIT: Duration = Duration::from_secs(600);

    /// Joins the world; alone, if the process was not started by `mpirun` or its kin. Once in a process. All ranks must
    /// drop it in the end: a process that ends without that takes the others with it.
    ///
    /// # Errors
    /// MPI has been begun in this process before.
    pub fn world() -> Result<Self, ParallelError> {
        let (ask, asked) = channel::<(Asked, Duration)>();
        let (answer, answers) = channel();
        let (place, places) = channel();
        let thread = thread::spawn(move || {
            let Some((universe, _)) = ::mpi::initialize_with_threading(Threading::Funneled) else { return };
            let world = universe.world();
            place.send((world.rank(), world.size())).ok();
            while let Ok((asked, limit)) = asked.recv() {
                let patience = Patience::new(&world, limit, |silent| {
                    answer.send(Err(silent)).ok();
                });
                if answer.send(exchange(&world, asked, &patience)).is_err() {
                    break;
                }
            }
        });
        let begun = || ParallelError::Transport("MPI was begun in this process before".to_owned());
        let (rank, size) = places.recv().map_err(|_| begun())?;
        let (rank, size) = (number(rank), number(size));
        Ok(Self { rank, size, limit: Self::LIMIT, ask: Some(ask), answers, thread: Some(thread) })
    }

    /// Waits so long for other ranks and no longer, a second at least: whoever has not come by then is said to be silent
    /// ([`ParallelError::Silent`]), and nothing can be exchanged any more. [`Mpi::LIMIT`] unless told.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit.max(Duration::from_secs(1));
        self
    }

    fn asked(&mut self, what: Asked) -> Result<Answer, ParallelError> {
        let over = || ParallelError::Transport("MPI has ended".to_owned());
        self.ask.as_ref().ok_or_else(over)?.send((what, self.limit)).map_err(|_| over())?;
        let answer = self.answers.recv().map_err(|_| over())?;
        if let Err(ParallelError::Silent { .. }) = answer {
            // The thread goes on waiting: what was begun cannot be taken back.
            (self.ask, self.thread) = (None, None);
        }
        answer
    }

    fn bytes(&mut self, what: Asked) -> Result<Vec<Vec<u8>>, ParallelError> {
        match self.asked(what)? {
            Answer::Bytes(bytes) => Ok(bytes),
            Answer::Sum(_) => Ok(Vec::new()),
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        self.ask = None;
        self.thread.take().map(JoinHandle::join);
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        self.bytes(Asked::Same(mine.to_vec()))
    }

    fn all_to_all(&mut self, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ParallelError> {
        self.bytes(Asked::Each(to.to_vec()))
    }

    fn all_reduce(&mut self, values: &mut Vec<f32>) -> Result<(), ParallelError> {
        if let Answer::Sum(sum) = self.asked(Asked::Sum(std::mem::take(values)))? {
            *values = sum;
        }
        Ok(())
    }
}

fn number(count: Count) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// Where messages of these lengths begin, side by side, and where the last ends.
fn starts(counts: &[Count]) -> Result<(Vec<Count>, usize), ParallelError> {
    let mut end: Count = 0;
    let all = counts.iter().map(|count| {
        let start = end;
        end = end.checked_add(*count)?;
        Some(start)
    });
    let all: Option<Vec<Count>> = all.collect();
    all.map(|all| (all, number(end))).ok_or_else(long)
}

fn long() -> ParallelError {
    ParallelError::Transport("a message of more than 2^31 − 1 bytes".to_owned())
}

/// Lengths first, then bytes.
fn exchange(
    world: &impl CommunicatorCollectives, asked: Asked, patience: &Patience<'_>,
) -> Result<Answer, ParallelError> {
    let length = |one: &Vec<u8>| Count::try_from(one.len()).map_err(|_| long());
    let mut counts: Vec<Count> = vec![0; number(world.size())];
    let received = match asked {
        Asked::Same(mine) => {
            let count = length(&mine)?;
            scope(|scope| patience.wait(world.immediate_all_gather_into(scope, &count, &mut counts[..])));
            let (starts, end) = starts(&counts)?;
            let mut received = vec![0; end];
            let mut places = PartitionMut::new(&mut received[..], &counts[..], &starts[..]);
            scope(|scope| {
                patience.wait(world.immediate_all_gather_varcount_into(scope, &mine[..], &mut places));
            });
            received
        }
        Asked::Each(to) => {
            let mine = to.iter().map(length).collect::<Result<Vec<_>, _>>()?;
            scope(|scope| patience.wait(world.immediate_all_to_all_into(scope, &mine[..], &mut counts[..])));
            let ((from, _), (starts, end)) = (starts(&mine)?, starts(&counts)?);
            let (bytes, mut received) = (to.concat(), vec![0; end]);
            let sent = Partition::new(&bytes[..], &mine[..], &from[..]);
            let mut places = PartitionMut::new(&mut received[..], &counts[..], &starts[..]);
            scope(|scope| {
                patience.wait(world.immediate_all_to_all_varcount_into(scope, &sent, &mut places));
            });
            received
        }
        Asked::Sum(mine) => {
            let mut sum = vec![0f32; mine.len()];
            let add = SystemOperation::sum();
            scope(|scope| patience.wait(world.immediate_all_reduce_into(scope, &mine[..], &mut sum[..], add)));
            return Ok(Answer::Sum(sum));
        }
    };
    let mut rest = &received[..];
    let split = |count: &Count| {
        let (one, behind) = rest.split_at(number(*count));
        rest = behind;
        one.to_vec()
    };
    Ok(Answer::Bytes(counts.iter().map(split).collect()))
}
