//! Parallel loops over chunks of a result: on the thread pool, or serial where the work costs less than waking threads.

mod thread_pool;

pub use thread_pool::ThreadPool;

use crate::Cpu;
use std::sync::{Mutex, PoisonError};

/// Largest cost, in stored elements, of work that stays on the calling thread. Storing this many takes about as long as
/// the pool's threads need to start on a job.
const MIN_PARALLEL_COST: usize = 1 << 14;
/// Number of multiply-accumulates that take about as long as storing one element.
const MACS_PER_ELEMENT: usize = 32;

/// Cost of an operator, in elements stored: decides whether the pool is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost(usize);

impl Cost {
    /// Creates the cost of storing `count` elements.
    pub const fn elements(count: usize) -> Self {
        Self(count)
    }

    /// Creates the cost of `count` multiply-accumulates.
    pub const fn macs(count: usize) -> Self {
        Self(count / MACS_PER_ELEMENT)
    }
}

impl Cpu {
    /// Returns true if work of this cost runs on the calling thread alone.
    pub(crate) fn is_serial(&self, cost: Cost) -> bool {
        self.thread_pool().count() == 1 || cost.0 <= MIN_PARALLEL_COST
    }

    /// Calls `work` for `0..count` in parallel and returns the results in order.
    pub(crate) fn par_map<R: Send>(&self, cost: Cost, count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
        if self.is_serial(cost) {
            return (0..count).map(work).collect();
        }
        let results: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
        self.thread_pool().for_each_index(count, |i| {
            let result = work(i);
            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        let result = |result: Mutex<Option<R>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|chunk| result(chunk).unwrap_or_else(|| panic!("a part was left out"))).collect()
    }

    /// Splits `y` into chunks of `size` elements, calls `work` on each in parallel and returns the results in order.
    pub(crate) fn par_chunks_mut<T: Send, R: Send>(
        &self, cost: Cost, y: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        self.par_chunks_mut_with_first(cost, y, [size; 2], work)
    }

    /// Splits `y` like [`Cpu::par_chunks_mut`], but the first chunk has its own size.
    pub(crate) fn par_chunks_mut_with_first<T: Send, R: Send>(
        &self, cost: Cost, y: &mut [T], [first, size]: [usize; 2], work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let (first, rest) = y.split_at_mut(first.min(y.len()));
        let chunks = Some(first).filter(|first| !first.is_empty()).into_iter().chain(rest.chunks_mut(size.max(1)));
        if self.is_serial(cost) {
            return chunks.enumerate().map(|(i, y)| work(i, y)).collect();
        }
        // Every lock is taken once, because every chunk is processed by one thread.
        let chunks: Vec<Mutex<&mut [T]>> = chunks.map(Mutex::new).collect();
        self.par_map(cost, chunks.len(), |i| work(i, &mut chunks[i].lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
