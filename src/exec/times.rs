//! Measured times of launches, by the device's own clock.
//!
//! Timed launches run one by one, because a recording is one launch to the host and hides its parts. The results have
//! the same bits, because a recorded step has those of an eager one.

use super::{
    launch::{Enqueued, run},
    memory::Memory,
    record::LaunchFailure,
};
use crate::graph::Operation;
use gradscale_core::backend::{Backend, Cost, Error};
use std::{collections::HashMap, time::Duration};

/// Number of operations that are enqueued between two waits for the device. It is large, because each wait idles the
/// device once.
const TIMED_TOGETHER: usize = 1024;

/// Time of all launches of one name and shape, by the device's own clock ([`crate::Trainer::time_launches`]).
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchTime {
    /// Name of the operator whose launches were timed.
    pub name: &'static str,
    /// Operation and size of the launches, for example `forward 12x360x480x64 7x7x64`.
    pub shape: String,
    /// Number of timed launches of the row's operator and size.
    pub launches: u64,
    /// Total time of the row's launches in seconds.
    pub seconds: f64,
    /// Total memory traffic and arithmetic of the row's launches, computed from the shapes.
    pub cost: Cost,
    /// Fraction of the time of all launches that the row's launches took.
    pub share: f64,
}

impl LaunchTime {
    /// Returns the bandwidth of the launches in 10^9 bytes per second, by [`Cost::bytes`].
    #[must_use]
    pub fn gigabytes_per_second(&self) -> f64 {
        rate(self.cost.bytes, self.seconds)
    }

    /// Returns the arithmetic rate of the launches in 10^9 floating-point operations per second, by
    /// [`Cost::operations`].
    #[must_use]
    pub fn gigaflops(&self) -> f64 {
        rate(self.cost.operations, self.seconds)
    }
}

/// Computes a rate in 10^9 per second; 0 if the clock was too coarse to measure any time.
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds / 1e9 } else { 0.0 }
}

/// Accumulated times of launches by operator name and shape.
#[derive(Debug, Default)]
pub(super) struct Times {
    taken: bool,
    rows: Vec<LaunchTime>,
    /// Row numbers of the accumulated times, by operator name and shape.
    known: HashMap<(&'static str, String), usize>,
}

impl Times {
    /// Returns true if the execution times of launches are measured.
    pub const fn are_taken(&self) -> bool {
        self.taken
    }

    pub const fn take(&mut self, taken: bool) {
        self.taken = taken;
    }

    /// Runs operations one by one and accumulates the time of each.
    pub fn run<'o, B: Backend>(
        &mut self, device: &B, table: &B::Table, memory: &mut Memory<B>,
        operations: impl Iterator<Item = &'o Operation>,
    ) -> Result<(), LaunchFailure<B::Error>> {
        let operations: Vec<&Operation> = operations.collect();
        for (part, operations) in operations.chunks(TIMED_TOGETHER).enumerate() {
            let mut times = vec![Duration::ZERO; operations.len()];
            let mut enqueued = Vec::with_capacity(operations.len());
            let mut at = None;
            let timed = device.time(&mut times, |i| {
                let ran = run(device, table, memory, operations[i], Some(&mut enqueued));
                ran.inspect_err(|_| at = Some(part * TIMED_TOGETHER + i))
            });
            if !timed.map_err(|error| (at, error))? {
                return Err((None, B::Error::unsupported("time")));
            }
            enqueued.into_iter().zip(times).for_each(|(one, time)| self.add(one, time));
        }
        Ok(())
    }

    fn add(&mut self, Enqueued { name, shape, cost }: Enqueued, time: Duration) {
        let next = self.rows.len();
        let at = *self.known.entry((name, shape.clone())).or_insert(next);
        if at == next {
            self.rows.push(LaunchTime { name, shape, launches: 0, seconds: 0.0, cost: Cost::default(), share: 0.0 });
        }
        let row = &mut self.rows[at];
        row.launches += 1;
        row.seconds += time.as_secs_f64();
        row.cost.bytes += cost.bytes;
        row.cost.operations += cost.operations;
    }

    /// Returns the accumulated times, longest total first, and resets them.
    pub fn drain(&mut self) -> Vec<LaunchTime> {
        self.known.clear();
        let mut rows = std::mem::take(&mut self.rows);
        let all: f64 = rows.iter().map(|row| row.seconds).sum();
        for row in &mut rows {
            row.share = if all > 0.0 { row.seconds / all } else { 0.0 };
        }
        // Stable sort: of equal times the first launch comes first.
        rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        rows
    }
}
