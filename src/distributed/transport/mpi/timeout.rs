//! Time-out of collectives: detection of unresponsive ranks.
//!
//! A rank that has waited too long pings all others. Ranks that wait as well answer at once with a ping. A rank that does
//! not is dead, hangs, or is busy with something else.

use super::{DistributedError, to_usize};
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

/// Tag of pings, which no other message has ("gs" in ASCII).
const PING_TAG: Tag = 0x6773;
static EMPTY_MESSAGE: [u8; 0] = [];
/// Time of busy waiting for a collective at first, because most messages arrive within it.
const SPIN_TIME: Duration = Duration::from_micros(500);
/// Interval between tests whether a collective is complete, after busy waiting.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Interval between probes for pings of other ranks.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
/// Time within which waiting ranks answer a ping: 20 of their probes.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Time-out for one collective, with a callback for its error.
pub(super) struct TimeoutMonitor<'a> {
    world: &'a SimpleCommunicator,
    timeout: Duration,
    on_timeout: Box<dyn Fn(DistributedError) + 'a>,
}

impl<'a> TimeoutMonitor<'a> {
    pub fn new(world: &'a SimpleCommunicator, timeout: Duration, on_timeout: impl Fn(DistributedError) + 'a) -> Self {
        Self { world, timeout, on_timeout: Box::new(on_timeout) }
    }

    /// Waits until a request is complete. After the time-out it reports the error once and continues to wait, because MPI may
    /// write into the buffers at any time.
    pub fn wait<'s, D: ?Sized, S: Scope<'s>>(&self, mut request: Request<'s, D, S>) {
        let (start, mut last_probe, mut has_timed_out) = (Instant::now(), Instant::now(), false);
        loop {
            request = match request.test() {
                Ok(_) => return,
                Err(request) => request,
            };
            let waited = start.elapsed();
            if waited < SPIN_TIME {
                yield_now();
                continue;
            }
            sleep(POLL_INTERVAL);
            if !has_timed_out && last_probe.elapsed() > HEARTBEAT_INTERVAL {
                last_probe = Instant::now();
                let caller = self.probe_ping();
                if waited > self.timeout || caller.is_some() {
                    has_timed_out = true;
                    (self.on_timeout)(DistributedError::Timeout {
                        ranks: self.find_unresponsive_ranks(caller),
                        seconds: self.timeout.as_secs(),
                    });
                }
            }
        }
    }

    /// Receives a ping of another rank, if there is one, and returns the rank that sent it.
    fn probe_ping(&self) -> Option<usize> {
        let (call, status) = self.world.any_process().immediate_matched_probe_with_tag(PING_TAG)?;
        call.matched_receive_into(&mut [0u8; 0][..]);
        Some(to_usize(status.source_rank()))
    }

    /// Pings all other ranks and returns the indices of those that do not answer.
    fn find_unresponsive_ranks(&self, caller: Option<usize>) -> Vec<usize> {
        let (here, size) = (to_usize(self.world.rank()), to_usize(self.world.size()));
        let mut responsive = vec![false; size];
        for rank in (0..self.world.size()).filter(|&rank| to_usize(rank) != here) {
            let ping =
                self.world.process_at_rank(rank).immediate_send_with_tag(StaticScope, &EMPTY_MESSAGE[..], PING_TAG);
            // A lost rank never receives it, so its completion is not awaited.
            mem::forget(ping);
        }
        let mut mark_responsive =
            |rank: usize| responsive.iter_mut().skip(rank).take(1).for_each(|responsive| *responsive = true);
        [here].into_iter().chain(caller).for_each(&mut mark_responsive);
        let start = Instant::now();
        while start.elapsed() < REPLY_TIMEOUT {
            while let Some(rank) = self.probe_ping() {
                mark_responsive(rank);
            }
            sleep(HEARTBEAT_INTERVAL / 10);
        }
        (0..size).filter(|&rank| !responsive[rank]).collect()
    }
}
