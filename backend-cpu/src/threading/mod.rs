//! Work on parts of a result: on all threads of the device where it is worth it, or on the caller's.

mod thread_pool;

pub use thread_pool::Threads;

use crate::Cpu;
use std::sync::{Mutex, PoisonError};

/// Elements that are stored in the time that other threads take to join in.
const JOINING: usize = 1 << 14;
/// Multiplications with addition that take as long as storing an element.
const PRODUCTS: usize = 32;

/// What work costs, in elements that are stored in that time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost(usize);

impl Cost {
    pub const fn elements(count: usize) -> Self {
        Self(count)
    }

    /// Of so many products that are added.
    pub const fn products(count: usize) -> Self {
        Self(count / PRODUCTS)
    }
}

impl Cpu {
    /// Whether work stays on the thread that asks for it.
    pub(crate) fn alone(&self, cost: Cost) -> bool {
        self.threads().count() == 1 || cost.0 <= JOINING
    }

    /// Works on so many parts; results in order.
    pub(crate) fn parts<R: Send>(&self, cost: Cost, count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
        if self.alone(cost) {
            return (0..count).map(work).collect();
        }
        let results: Vec<Mutex<Option<R>>> = (0..count).map(|_| Mutex::new(None)).collect();
        self.threads().each(count, |i| {
            let result = work(i);
            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        let result = |result: Mutex<Option<R>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
        results.into_iter().map(|part| result(part).unwrap_or_else(|| panic!("a part was left out"))).collect()
    }

    /// Cuts memory into pieces of `size` elements and works on all; results in order.
    pub(crate) fn pieces_of<T: Send, R: Send>(
        &self, cost: Cost, y: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        self.pieces_after(cost, y, [size; 2], work)
    }

    /// The same with another size of the first.
    pub(crate) fn pieces_after<T: Send, R: Send>(
        &self, cost: Cost, y: &mut [T], [first, size]: [usize; 2], work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let (first, rest) = y.split_at_mut(first.min(y.len()));
        let pieces = Some(first).filter(|first| !first.is_empty()).into_iter().chain(rest.chunks_mut(size.max(1)));
        if self.alone(cost) {
            return pieces.enumerate().map(|(i, y)| work(i, y)).collect();
        }
        // Each is locked once, by the only one that works on it.
        let pieces: Vec<Mutex<&mut [T]>> = pieces.map(Mutex::new).collect();
        self.parts(cost, pieces.len(), |i| work(i, &mut pieces[i].lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
