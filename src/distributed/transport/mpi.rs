//! Ranks of MPI: processes that `mpirun`, `srun` or a batch system has started, on one machine or several.
//!
//! MPI must be called by the thread that initialized it, and handles of its communicators stay on that thread.
//! Therefore it has a dedicated thread, which lives as long as [`Mpi`].

mod timeout;

use crate::distributed::{Communicator, DistributedError};
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
use timeout::TimeoutMonitor;

/// Collective that the MPI thread is to run.
enum Request {
    /// All-gather: one message of this rank for all ranks.
    Gather(Vec<u8>),
    /// All-to-all: one message of this rank for each rank.
    Exchange(Vec<Vec<u8>>),
    /// All-reduce: values to be summed over all ranks.
    Sum(Vec<f32>),
}

/// Result of a collective that the MPI thread has run.
enum Reply {
    Bytes(Vec<Vec<u8>>),
    Sum(Vec<f32>),
}

/// Communicator over all ranks that the launcher of this process has started.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    /// Maximum time to wait for other ranks in a collective.
    timeout: Duration,
    /// Queue of the MPI thread; closed when the communicator is dropped, which ends the thread.
    requests: Option<Sender<(Request, Duration)>>,
    replies: Receiver<Result<Reply, DistributedError>>,
    thread: Option<JoinHandle<()>>,
}

impl Mpi {
    /// Default time-out for a rank: that of PyTorch for NCCL, 10 minutes.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    /// Connects to the ranks of the launcher; a process without launcher is a world of one rank. Call it once per process.
    /// All ranks must drop the result in the end, because a process that exits without it ends the others too.
    ///
    /// # Errors
    /// MPI was already initialized in this process.
    pub fn world() -> Result<Self, DistributedError> {
        let (requests, request) = channel::<(Request, Duration)>();
        let (reply, replies) = channel();
        let (world_info, buffers) = channel();
        let thread = thread::spawn(move || {
            let Some((universe, _)) = ::mpi::initialize_with_threading(Threading::Funneled) else { return };
            let world = universe.world();
            world_info.send((world.rank(), world.size())).ok();
            while let Ok((request, timeout)) = request.recv() {
                let monitor = TimeoutMonitor::new(&world, timeout, |error| {
                    reply.send(Err(error)).ok();
                });
                if reply.send(run_collective(&world, request, &monitor)).is_err() {
                    break;
                }
            }
        });
        let begun = || {
            DistributedError::Transport(
                "MPI was initialized in this process before; it can be only \
            once"
                    .to_owned(),
            )
        };
        let (rank, size) = buffers.recv().map_err(|_| begun())?;
        let (rank, size) = (to_usize(rank), to_usize(size));
        Ok(Self { rank, size, timeout: Self::DEFAULT_TIMEOUT, requests: Some(requests), replies, thread: Some(thread) })
    }

    /// Sets the time-out, at least one second; the default is [`Mpi::DEFAULT_TIMEOUT`]. Ranks that do not respond within it
    /// are reported ([`DistributedError::Timeout`]), and no further collective is possible.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_secs(1));
        self
    }

    fn submit(&mut self, request: Request) -> Result<Reply, DistributedError> {
        let over = || DistributedError::Transport("MPI was finalized before".to_owned());
        self.requests.as_ref().ok_or_else(over)?.send((request, self.timeout)).map_err(|_| over())?;
        let reply = self.replies.recv().map_err(|_| over())?;
        if let Err(DistributedError::Timeout { .. }) = reply {
            // The thread continues to wait, because a collective cannot be cancelled.
            (self.requests, self.thread) = (None, None);
        }
        reply
    }

    fn submit_for_messages(&mut self, request: Request) -> Result<Vec<Vec<u8>>, DistributedError> {
        match self.submit(request)? {
            Reply::Bytes(bytes) => Ok(bytes),
            Reply::Sum(_) => Ok(Vec::new()),
        }
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        self.requests = None;
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

    fn all_gather(&mut self, local: &[u8]) -> Result<Vec<Vec<u8>>, DistributedError> {
        self.submit_for_messages(Request::Gather(local.to_vec()))
    }

    fn all_to_all(&mut self, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, DistributedError> {
        self.submit_for_messages(Request::Exchange(to.to_vec()))
    }

    fn all_reduce(&mut self, values: &mut Vec<f32>) -> Result<(), DistributedError> {
        if let Reply::Sum(sum) = self.submit(Request::Sum(std::mem::take(values)))? {
            *values = sum;
        }
        Ok(())
    }
}

fn to_usize(count: Count) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// Returns the displacements of contiguous messages of these lengths, and the end of the last one.
fn displacements(counts: &[Count]) -> Result<(Vec<Count>, usize), DistributedError> {
    let mut end: Count = 0;
    let all = counts.iter().map(|count| {
        let start = end;
        end = end.checked_add(*count)?;
        Some(start)
    });
    let all: Option<Vec<Count>> = all.collect();
    all.map(|all| (all, to_usize(end))).ok_or_else(message_too_long)
}

fn message_too_long() -> DistributedError {
    DistributedError::Transport("a message has more than 2^31 − 1 bytes, MPI's maximum".to_owned())
}

/// Runs a collective of MPI: lengths of messages are exchanged first, then bytes.
fn run_collective(
    world: &impl CommunicatorCollectives, request: Request, monitor: &TimeoutMonitor<'_>,
) -> Result<Reply, DistributedError> {
    let length = |one: &Vec<u8>| Count::try_from(one.len()).map_err(|_| message_too_long());
    let mut counts: Vec<Count> = vec![0; to_usize(world.size())];
    let received = match request {
        Request::Gather(local) => {
            let count = length(&local)?;
            scope(|scope| monitor.wait(world.immediate_all_gather_into(scope, &count, &mut counts[..])));
            let (starts, end) = displacements(&counts)?;
            let mut received = vec![0; end];
            let mut buffers = PartitionMut::new(&mut received[..], &counts[..], &starts[..]);
            scope(|scope| {
                monitor.wait(world.immediate_all_gather_varcount_into(scope, &local[..], &mut buffers));
            });
            received
        }
        Request::Exchange(to) => {
            let local = to.iter().map(length).collect::<Result<Vec<_>, _>>()?;
            scope(|scope| monitor.wait(world.immediate_all_to_all_into(scope, &local[..], &mut counts[..])));
            let ((from, _), (starts, end)) = (displacements(&local)?, displacements(&counts)?);
            let (bytes, mut received) = (to.concat(), vec![0; end]);
            let sent = Partition::new(&bytes[..], &local[..], &from[..]);
            let mut buffers = PartitionMut::new(&mut received[..], &counts[..], &starts[..]);
            scope(|scope| {
                monitor.wait(world.immediate_all_to_all_varcount_into(scope, &sent, &mut buffers));
            });
            received
        }
        Request::Sum(local) => {
            let mut sum = vec![0f32; local.len()];
            let add = SystemOperation::sum();
            scope(|scope| monitor.wait(world.immediate_all_reduce_into(scope, &local[..], &mut sum[..], add)));
            return Ok(Reply::Sum(sum));
        }
    };
    let mut rest = &received[..];
    let split = |count: &Count| {
        let (one, behind) = rest.split_at(to_usize(*count));
        rest = behind;
        one.to_vec()
    };
    Ok(Reply::Bytes(counts.iter().map(split).collect()))
}
