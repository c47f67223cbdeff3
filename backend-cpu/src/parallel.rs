//! Work on parts of a result: on all threads of the device where it is worth it, or on the caller's.

use crate::Cpu;
use rayon::prelude::*;

/// Elements that are stored in the time that other threads take to wake and to report.
const WAKING: usize = 1 << 15;
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
        self.threads() == 1 || cost.0 <= WAKING
    }

    /// Works on so many parts; results in order.
    pub(crate) fn parts<R: Send>(&self, cost: Cost, count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
        if self.alone(cost) {
            (0..count).map(work).collect()
        } else {
            self.run(|| (0..count).into_par_iter().map(&work).collect())
        }
    }

    /// Cuts memory into pieces of `size` elements and works on all; results in order.
    pub(crate) fn pieces_of<T: Send, R: Send>(
        &self, cost: Cost, y: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let size = size.max(1);
        if self.alone(cost) {
            y.chunks_mut(size).enumerate().map(|(i, y)| work(i, y)).collect()
        } else {
            self.run(|| y.par_chunks_mut(size).enumerate().map(|(i, y)| work(i, y)).collect())
        }
    }
}
