//! Memory for the time of an operator: counted, at the start of a cache line, and used again.

use crate::Cpu;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bytes of a cache line, and of a vector of 16 lanes.
const LINE: usize = 64;
/// Elements of the largest piece that is kept, and of all that are kept.
const KEPT: usize = 1 << 20;
const KEPT_IN_ALL: usize = 1 << 23;
/// Lengths are multiples of this, so that pieces of similar length take each other's place.
const STEP: usize = 1024;

/// Scratch memory in use, the most that was, and pieces that wait for their next use.
#[derive(Debug, Default)]
pub struct Pool {
    now: AtomicU64,
    peak: AtomicU64,
    free: Mutex<Vec<Vec<f32>>>,
}

/// f32 scratch memory.
pub struct Scratch<'a> {
    data: Vec<f32>,
    from: usize,
    len: usize,
    pool: &'a Pool,
}

impl Pool {
    /// The most that was in use since the last call.
    pub fn peak(&self) -> u64 {
        self.peak.swap(0, Relaxed)
    }

    fn take(&self, len: usize) -> Scratch<'_> {
        let bytes = 4 * len as u64;
        let now = self.now.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(now, Relaxed);
        let room = len + LINE / size_of::<f32>();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // The smallest that is large enough.
        let fits = free.iter().enumerate().filter(|(_, data)| data.len() >= room).min_by_key(|(_, data)| data.len());
        let found = fits.map(|(i, _)| i).map(|i| free.swap_remove(i));
        drop(free);
        let data = found.unwrap_or_else(|| vec![0.0; room.next_multiple_of(STEP)]);
        let from = data.as_ptr().align_offset(LINE).min(data.len() - len);
        Scratch { data, from, len, pool: self }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.pool.now.fetch_sub(4 * self.len as u64, Relaxed);
        if self.data.len() <= KEPT {
            let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
            if free.iter().map(Vec::len).sum::<usize>() + self.data.len() <= KEPT_IN_ALL {
                free.push(core::mem::take(&mut self.data));
            }
        }
    }
}

impl core::ops::Deref for Scratch<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data[self.from..self.from + self.len]
    }
}

impl core::ops::DerefMut for Scratch<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.from..self.from + self.len]
    }
}

impl Cpu {
    /// So many numbers, whatever they are.
    pub(crate) fn scratch(&self, len: usize) -> Scratch<'_> {
        self.pool().take(len)
    }

    /// So many zeros.
    pub(crate) fn zeros(&self, len: usize) -> Scratch<'_> {
        let mut scratch = self.scratch(len);
        scratch.fill(0.0);
        scratch
    }
}
