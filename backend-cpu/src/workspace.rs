//! Memory for the time of an operator: counted, at the start of a cache line, and used again.

use crate::{Cpu, threading::Threads};
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bytes of a cache line, and of a vector of 16 lanes.
pub const LINE: usize = 64;
/// Elements that all threads keep together, each an equal share, and the least share of one.
const KEPT_IN_ALL: usize = 1 << 23;
const KEPT: usize = 1 << 18;
/// Lengths are multiples of this, so that pieces of similar length take each other's place.
const STEP: usize = 1024;

/// Scratch memory in use, the most that was, and pieces that wait for their next use.
#[derive(Debug)]
pub struct Pool {
    now: AtomicU64,
    peak: AtomicU64,
    /// Each helper has its own, so that none waits for another; the last are those of whoever asks for work.
    free: Vec<Mutex<Free>>,
}

/// Pieces that wait, and elements of all of them.
#[derive(Debug, Default)]
struct Free {
    pieces: Vec<Vec<f32>>,
    len: usize,
}

/// f32 scratch memory.
pub struct Scratch<'a> {
    data: Vec<f32>,
    from: usize,
    len: usize,
    pool: &'a Pool,
    /// Whose it was, and will be again.
    owner: usize,
}

impl Pool {
    /// For so many helpers and all others.
    pub fn new(helpers: usize) -> Self {
        Self {
            now: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            free: (0..=helpers).map(|_| Mutex::default()).collect(),
        }
    }

    /// The most that was in use since the last call.
    pub fn peak(&self) -> u64 {
        self.peak.swap(0, Relaxed)
    }

    /// Memory for a helper, or for another thread.
    fn take(&self, len: usize, helper: Option<usize>) -> Scratch<'_> {
        let bytes = 4 * len as u64;
        let now = self.now.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(now, Relaxed);
        let (room, others) = (len + LINE / size_of::<f32>(), self.free.len() - 1);
        let owner = helper.unwrap_or(others).min(others);
        let found = self.free(owner).take(room);
        let data = found.unwrap_or_else(|| vec![0.0; room.next_multiple_of(STEP)]);
        let from = data.as_ptr().align_offset(LINE).min(data.len() - len);
        Scratch { data, from, len, pool: self, owner }
    }

    fn free(&self, owner: usize) -> MutexGuard<'_, Free> {
        self.free[owner].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    /// The smallest piece that is large enough.
    fn take(&mut self, room: usize) -> Option<Vec<f32>> {
        let fits = self.pieces.iter().enumerate().filter(|(_, data)| data.len() >= room);
        let piece = self.pieces.swap_remove(fits.min_by_key(|(_, data)| data.len())?.0);
        self.len -= piece.len();
        Some(piece)
    }

    /// Keeps a piece, if there is room for it.
    fn give(&mut self, piece: Vec<f32>, most: usize) {
        if self.len + piece.len() <= most {
            self.len += piece.len();
            self.pieces.push(piece);
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        self.pool.now.fetch_sub(4 * self.len as u64, Relaxed);
        let most = (KEPT_IN_ALL / self.pool.free.len()).max(KEPT);
        self.pool.free(self.owner).give(core::mem::take(&mut self.data), most);
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
        self.pool().take(len, Threads::helper())
    }

    /// So many zeros.
    pub(crate) fn zeros(&self, len: usize) -> Scratch<'_> {
        let mut scratch = self.scratch(len);
        scratch.fill(0.0);
        scratch
    }
}
