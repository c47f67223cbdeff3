//! Ranks of MPI: processes that `mpirun`, `srun` or a batch system has started, on one machine or several.
//!
//! MPI wants to be called by the thread that began it, and handles of its communicators stay there; so it has a thread of
//! its own, which lives as long as this does.

use super::{Communicator, ParallelError};
use mpi::{
    Count, Threading,
    collective::CommunicatorCollectives,
    datatype::{Partition, PartitionMut},
    topology::Communicator as _,
};
use std::{
    sync::mpsc::{Receiver, Sender, channel},
    thread::{self, JoinHandle},
};

/// What the thread is asked, with what each rank gets; all get the same if there is but one message.
type Asked = Vec<Vec<u8>>;

/// All ranks of the world that this process was started in.
#[derive(Debug)]
pub struct Mpi {
    rank: usize,
    size: usize,
    /// Closed by the end of this.
    ask: Option<Sender<Asked>>,
    answers: Receiver<Result<Vec<Vec<u8>>, ParallelError>>,
    thread: Option<JoinHandle<()>>,
}

impl Mpi {
    /// Joins the world; alone, if the process was not started by `mpirun` or its kin. Once in a process. All ranks must
    /// drop it in the end: a process that ends without that takes the others with it.
    ///
    /// # Errors
    /// MPI has been begun in this process before.
    pub fn world() -> Result<Self, ParallelError> {
        let (ask, asked) = channel::<Asked>();
        let (answer, answers) = channel();
        let (place, places) = channel();
        let thread = thread::spawn(move || {
            let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else { return };
            let world = universe.world();
            place.send((world.rank(), world.size())).ok();
            while let Ok(asked) = asked.recv() {
                if answer.send(exchange(&world, &asked)).is_err() {
                    break;
                }
            }
        });
        let begun = || ParallelError::Transport("MPI was begun in this process before".to_owned());
        let (rank, size) = places.recv().map_err(|_| begun())?;
        let number = |count: Count| usize::try_from(count).unwrap_or(0);
        Ok(Self { rank: number(rank), size: number(size), ask: Some(ask), answers, thread: Some(thread) })
    }

    fn asked(&self, what: Asked) -> Result<Vec<Vec<u8>>, ParallelError> {
        let over = || ParallelError::Transport("MPI has ended".to_owned());
        self.ask.as_ref().ok_or_else(over)?.send(what).map_err(|_| over())?;
        self.answers.recv().map_err(|_| over())?
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
        self.asked(vec![mine.to_vec()])
    }

    fn all_to_all(&mut self, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ParallelError> {
        self.asked(to.to_vec())
    }
}

/// Lengths first, then bytes. With ranks to send to beside this one, one message is for all.
fn exchange(world: &impl CommunicatorCollectives, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ParallelError> {
    let size = usize::try_from(world.size()).unwrap_or(0);
    let long = || ParallelError::Transport("a message of more than 2^31 − 1 bytes".to_owned());
    let starts = |counts: &[Count]| {
        let mut end: Count = 0;
        let all = counts.iter().map(|count| {
            let start = end;
            end = end.checked_add(*count)?;
            Some(start)
        });
        let all: Option<Vec<Count>> = all.collect();
        all.map(|all| (all, end)).ok_or_else(long)
    };
    let mine = to.iter().map(|one| Count::try_from(one.len())).collect::<Result<Vec<_>, _>>().map_err(|_| long())?;
    let mut counts: Vec<Count> = vec![0; size];
    let bytes = to.concat();
    let received = if let [one] = mine[..]
        && size > 1
    {
        world.all_gather_into(&one, &mut counts[..]);
        let (starts, end) = starts(&counts)?;
        let mut received = vec![0; usize::try_from(end).unwrap_or(0)];
        let mut places = PartitionMut::new(&mut received[..], &counts[..], &starts[..]);
        world.all_gather_varcount_into(&bytes[..], &mut places);
        received
    } else {
        world.all_to_all_into(&mine[..], &mut counts[..]);
        let ((from, _), (starts, end)) = (starts(&mine)?, starts(&counts)?);
        let mut received = vec![0; usize::try_from(end).unwrap_or(0)];
        let sent = Partition::new(&bytes[..], &mine[..], &from[..]);
        let mut places = PartitionMut::new(&mut received[..], &counts[..], &starts[..]);
        world.all_to_all_varcount_into(&sent, &mut places);
        received
    };
    let mut rest = &received[..];
    let split = |count: &Count| {
        let (one, behind) = rest.split_at(usize::try_from(*count).unwrap_or(0));
        rest = behind;
        one.to_vec()
    };
    Ok(counts.iter().map(split).collect())
}
