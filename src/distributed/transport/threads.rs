//! Transport between threads of one process, each of which is a rank.

use crate::distributed::{Communicator, DistributedError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Messages from each rank to each rank, by sender.
type Messages = Arc<Vec<Vec<Vec<u8>>>>;

#[derive(Default)]
struct State {
    round: u64,
    waiting: Vec<Option<Vec<Vec<u8>>>>,
    /// Messages of the last complete round of exchanges.
    done: Messages,
    lost: Option<usize>,
}

struct SharedRound {
    state: Mutex<State>,
    changed: Condvar,
}

impl SharedRound {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Communicator of one thread. When it is dropped, ranks that wait for it get an error.
pub struct Threads {
    shared: Arc<SharedRound>,
    rank: usize,
    size: usize,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Threads {
    /// Returns `size` communicators in order, one for the thread of each rank.
    #[must_use]
    pub fn world(size: usize) -> Vec<Self> {
        let state = State { waiting: vec![None; size], ..State::default() };
        let shared = Arc::new(SharedRound { state: Mutex::new(state), changed: Condvar::new() });
        (0..size).map(|rank| Self { shared: shared.clone(), rank, size }).collect()
    }

    /// Sends messages to all ranks, waits for those of all ranks and returns them.
    fn exchange_messages(&self, local: Vec<Vec<u8>>) -> Result<Messages, DistributedError> {
        let mut state = self.shared.lock();
        let round = state.round;
        state.waiting[self.rank] = Some(local);
        if state.waiting.iter().all(Option::is_some) {
            state.done = Arc::new(state.waiting.iter_mut().filter_map(Option::take).collect());
            state.round += 1;
            self.shared.changed.notify_all();
            return Ok(state.done.clone());
        }
        while state.round == round {
            if let Some(rank) = state.lost {
                return Err(DistributedError::PeerLost(rank));
            }
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state.done.clone())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().lost.get_or_insert(self.rank);
        self.shared.changed.notify_all();
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, local: &[u8]) -> Result<Vec<Vec<u8>>, DistributedError> {
        let all = self.exchange_messages(vec![local.to_vec()])?;
        Ok(all.iter().map(|messages| messages.first().cloned().unwrap_or_default()).collect())
    }

    fn all_to_all(&mut self, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, DistributedError> {
        let all = self.exchange_messages(to.to_vec())?;
        Ok(all.iter().map(|messages| messages.get(self.rank).cloned().unwrap_or_default()).collect())
    }
}
