//! Work on parts of a result: on all threads of the device where it is worth it, or on the caller's.

mod thread_pool;

pub use thread_pool::ThreadPool;

use crate::Cpu;
use std::sync::{Mutex, PoisonError};

/// Elements that are stored in the time that other threads take to join in.
const MIN_PARALLEL_COST: usize = 1 << 14;
/// Multiplications with addition that take as long as storing an element.
const MACS_PER_ELEMENT: usize = 32;

/// What work costs, in elements that are stored in that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost(usize);

impl Cost {
    pub const fn elements(count: usize) -> Self {
        Self(count)
    }

    /// Of so many products that are added.
    pub const fn macs(count: usize) -> Self {
        Self(count / MACS_PER_ELEMENT)
    }
}

impl Cpu {
    /// Whether work stays on the thread that asks for it.
    pub(crate) fn is_serial(&self, cost: Cost) -> bool {
        self.thread_pool().count() == 1 || cost.0 <= MIN_PARALLEL_COST
    }

    /// Works on so many parts; results in order.
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

    /// Cuts memory into pieces of `size` elements and works on all; results in order.
    pub(crate) fn par_chunks_mut<T: Send, R: Send>(
        &self, cost: Cost, y: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        self.par_chunks_mut_with_first(cost, y, [size; 2], work)
    }

    /// The same with another size of the first.
    pub(crate) fn par_chunks_mut_with_first<T: Send, R: Send>(
        &self, cost: Cost, y: &mut [T], [first, size]: [usize; 2], work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let (first, rest) = y.split_at_mut(first.min(y.len()));
        let chunks = Some(first).filter(|first| !first.is_empty()).into_iter().chain(rest.chunks_mut(size.max(1)));
        if self.is_serial(cost) {
            return chunks.enumerate().map(|(i, y)| work(i, y)).collect();
        }
        // Each is locked once, by the only one that works on it.
        let chunks: Vec<Mutex<&mut [T]>> = chunks.map(Mutex::new).collect();
        self.par_map(cost, chunks.len(), |i| work(i, &mut chunks[i].lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
