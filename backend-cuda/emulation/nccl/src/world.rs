//! Rendezvous of the ranks: each waits until all have called.

use crate::collectives::{Call, perform};
use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Maximum time that a rank waits for the others.
const LIMIT: Duration = Duration::from_secs(60);

/// Group of the ranks that joined by the same invitation.
#[derive(Debug)]
pub struct World {
    pub ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    round: u64,
    /// Calls of each rank in the current round; `None` until the rank has called.
    calls: Vec<Option<Vec<Call>>>,
    /// Index of each rank's device, or `None` while the rank has not joined.
    devices: Vec<Option<usize>>,
}

/// Reason why a rank cannot join a group.
pub enum Refused {
    /// Another rank of the group uses the same device.
    Twice,
    /// Other ranks of the group have not joined in time.
    Alone,
}

impl World {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the group of an invitation, and returns it once all ranks have joined.
    pub fn join(invitation: [u8; 128], ranks: usize, rank: usize, device: usize) -> Result<Arc<Self>, Refused> {
        static WORLDS: Mutex<Option<HashMap<[u8; 128], Arc<World>>>> = Mutex::new(None);
        let empty = || State { round: 0, calls: vec![None; ranks], devices: vec![None; ranks] };
        let world = {
            let mut worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Self { ranks, state: Mutex::new(empty()), changed: Condvar::new() });
            worlds.get_or_insert_default().entry(invitation).or_insert_with(new).clone()
        };
        world.locked().devices[rank] = Some(device);
        world.meet(rank, Vec::new()).ok_or(Refused::Alone)?;
        let devices = world.locked().devices.clone();
        let twice = devices.iter().enumerate().any(|(i, device)| devices[..i].contains(device));
        if twice { Err(Refused::Twice) } else { Ok(world) }
    }

    /// Waits until all ranks have called, and performs their calls; returns `None` if others do not call.
    pub fn meet(&self, rank: usize, calls: Vec<Call>) -> Option<()> {
        let mut state = self.locked();
        let round = state.round;
        state.calls[rank] = Some(calls);
        if state.calls.iter().all(Option::is_some) {
            let all: Vec<Vec<Call>> = state.calls.iter_mut().filter_map(Option::take).collect();
            perform(&all);
            state.round += 1;
            self.changed.notify_all();
            return Some(());
        }
        let waited = self.changed.wait_timeout_while(state, LIMIT, |state| state.round == round);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (state.round != round).then_some(())
    }
}
