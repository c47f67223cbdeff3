//! Ranks that are threads of one process.

use crate::distributed::{Communicator, ParallelError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What each rank sends to each, by sender.
type Sent = Arc<Vec<Vec<Vec<u8>>>>;

#[derive(Default)]
struct State {
    round: u64,
    waiting: Vec<Option<Vec<Vec<u8>>>>,
    /// Of the round before.
    done: Sent,
    gone: Option<usize>,
}

struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

impl Meeting {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank that is a thread. When it is dropped, whoever waits for it gets an error.
pub struct Threads {
    meeting: Arc<Meeting>,
    rank: usize,
    size: usize,
}

impl std::fmt::Debug for Threads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Threads").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Threads {
    /// So many ranks, by number: one for each thread.
    #[must_use]
    pub fn world(size: usize) -> Vec<Self> {
        let state = State { waiting: vec![None; size], ..State::default() };
        let meeting = Arc::new(Meeting { state: Mutex::new(state), changed: Condvar::new() });
        (0..size).map(|rank| Self { meeting: meeting.clone(), rank, size }).collect()
    }

    /// Waits for all, and returns what they sent.
    fn meet(&self, mine: Vec<Vec<u8>>) -> Result<Sent, ParallelError> {
        let mut state = self.meeting.locked();
        let round = state.round;
        state.waiting[self.rank] = Some(mine);
        if state.waiting.iter().all(Option::is_some) {
            state.done = Arc::new(state.waiting.iter_mut().filter_map(Option::take).collect());
            state.round += 1;
            self.meeting.changed.notify_all();
            return Ok(state.done.clone());
        }
        while state.round == round {
            if let Some(rank) = state.gone {
                return Err(ParallelError::Gone(rank));
            }
            state = self.meeting.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state.done.clone())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.meeting.locked().gone.get_or_insert(self.rank);
        self.meeting.changed.notify_all();
    }
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, ParallelError> {
        let all = self.meet(vec![mine.to_vec()])?;
        Ok(all.iter().map(|of| of.first().cloned().unwrap_or_default()).collect())
    }

    fn all_to_all(&mut self, to: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ParallelError> {
        let all = self.meet(to.to_vec())?;
        Ok(all.iter().map(|of| of.get(self.rank).cloned().unwrap_or_default()).collect())
    }
}
