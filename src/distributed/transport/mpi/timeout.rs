//! Waiting for other ranks, but not for ever.
//!
//! Whoever has waited too long calls all others. Those that wait as well answer at once, by a call of their own; who does
//! not is dead, hangs, or is busy elsewhere.

use super::{ParallelError, number};
use ::mpi::{
    Tag,
    point_to_point::{Destination, Source},
    request::{Request, Scope, StaticScope},
    topology::{Communicator, SimpleCommunicator},
};
use std::{
    mem,
    thread::{sleep, yield_now},
    time::{Duration, Instant},
};

/// Of calls alone.
const CALL: Tag = 0x6773;
static NOTHING: [u8; 0] = [];
/// Waiting begins without sleep: most messages come at once.
const AWAKE: Duration = Duration::from_micros(500);
/// Then one looks so often whether they have.
const NAP: Duration = Duration::from_micros(50);
/// So often one listens for calls, and so long for answers to one's own.
const LISTEN: Duration = Duration::from_millis(100);
const ANSWERS: Duration = Duration::from_secs(2);

/// How long the others are waited for, and who is told when that is over.
pub(super) struct Patience<'a> {
    world: &'a SimpleCommunicator,
    limit: Duration,
    over: Box<dyn Fn(ParallelError) + 'a>,
}

impl<'a> Patience<'a> {
    pub fn new(world: &'a SimpleCommunicator, limit: Duration, over: impl Fn(ParallelError) + 'a) -> Self {
        Self { world, limit, over: Box::new(over) }
    }

    /// Until it is done. If that takes too long, says so once, and goes on waiting: MPI may write into its buffers at any
    /// time.
    pub fn wait<'s, D: ?Sized, S: Scope<'s>>(&self, mut request: Request<'s, D, S>) {
        let (begun, mut listened, mut said) = (Instant::now(), Instant::now(), false);
        loop {
            request = match request.test() {
                Ok(_) => return,
                Err(request) => request,
            };
            let waited = begun.elapsed();
            if waited < AWAKE {
                yield_now();
                continue;
            }
            sleep(NAP);
            if !said && listened.elapsed() > LISTEN {
                listened = Instant::now();
                let caller = self.called();
                if waited > self.limit || caller.is_some() {
                    said = true;
                    (self.over)(ParallelError::Silent { ranks: self.silent(caller), seconds: self.limit.as_secs() });
                }
            }
        }
    }

    /// Who has called, if someone has.
    fn called(&self) -> Option<usize> {
        let (call, status) = self.world.any_process().immediate_matched_probe_with_tag(CALL)?;
        call.matched_receive_into(&mut [0u8; 0][..]);
        Some(number(status.source_rank()))
    }

    /// Calls all others; those that say nothing, now or before.
    fn silent(&self, caller: Option<usize>) -> Vec<usize> {
        let (here, size) = (number(self.world.rank()), number(self.world.size()));
        let mut heard = vec![false; size];
        for rank in (0..self.world.size()).filter(|&rank| number(rank) != here) {
            let call = self.world.process_at_rank(rank).immediate_send_with_tag(StaticScope, &NOTHING[..], CALL);
            // Whoever is gone takes it from nobody.
            mem::forget(call);
        }
        let mut hear = |rank: usize| heard.iter_mut().skip(rank).take(1).for_each(|heard| *heard = true);
        [here].into_iter().chain(caller).for_each(&mut hear);
        let begun = Instant::now();
        while begun.elapsed() < ANSWERS {
            while let Some(rank) = self.called() {
                hear(rank);
            }
            sleep(LISTEN / 10);
        }
        (0..size).filter(|&rank| !heard[rank]).collect()
    }
}
