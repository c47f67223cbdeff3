//! Memory for the time of an operator: counted, at the start of a cache line, and used again.

use crate::{Cpu, threading::ThreadPool};
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Bytes of a cache line, and of a vector of 16 lanes.
pub const CACHE_LINE_BYTES: usize = 64;
/// Elements that all threads keep together, each an equal share, and the least share of one.
const MAX_CACHED_ELEMENTS: usize = 1 << 23;
const MIN_CACHE_PER_THREAD_ELEMENTS: usize = 1 << 18;
/// Lengths are multiples of this, so that pieces of similar length take each other's place.
const LENGTH_GRANULARITY: usize = 1024;

/// Scratch memory in use, the most that was, and pieces that wait for their next use.
#[derive(Debug)]
pub struct WorkspacePool {
    in_use: AtomicU64,
    peak: AtomicU64,
    /// Each helper has its own, so that none waits for another; the last are those of whoever asks for work.
    free: Vec<Mutex<FreeList>>,
}

/// Pieces that wait, and elements of all of them.
#[derive(Debug, Default)]
struct FreeList {
    buffers: Vec<Vec<f32>>,
    len: usize,
}

/// f32 scratch memory.
pub struct Workspace<'a> {
    data: Vec<f32>,
    from: usize,
    len: usize,
    pool: &'a WorkspacePool,
    /// Whose it was, and will be again.
    owner: usize,
}

impl WorkspacePool {
    /// For so many helpers and all others.
    pub fn new(workers: usize) -> Self {
        Self {
            in_use: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            free: (0..=workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// The most that was in use since the last call.
    pub fn peak(&self) -> u64 {
        self.peak.swap(0, Relaxed)
    }

    /// Memory for a helper, or for another thread.
    fn acquire(&self, len: usize, worker: Option<usize>) -> Workspace<'_> {
        let bytes = 4 * len as u64;
        let in_use = self.in_use.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(in_use, Relaxed);
        let (padded_len, last) = (len + CACHE_LINE_BYTES / size_of::<f32>(), self.free.len() - 1);
        let owner = worker.unwrap_or(last).min(last);
        let found = self.free(owner).take(padded_len);
        let data = found.unwrap_or_else(|| vec![0.0; padded_len.next_multiple_of(LENGTH_GRANULARITY)]);
        let from = data.as_ptr().align_offset(CACHE_LINE_BYTES).min(data.len() - len);
        Workspace { data, from, len, pool: self, owner }
    }

    fn free(&self, owner: usize) -> MutexGuard<'_, FreeList> {
        self.free[owner].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FreeList {
    /// The smallest piece that is large enough.
    fn take(&mut self, padded_len: usize) -> Option<Vec<f32>> {
        let fits = self.buffers.iter().enumerate().filter(|(_, data)| data.len() >= padded_len);
        let buffer = self.buffers.swap_remove(fits.min_by_key(|(_, data)| data.len())?.0);
        self.len -= buffer.len();
        Some(buffer)
    }

    /// Keeps a piece, if there is room for it.
    fn put(&mut self, buffer: Vec<f32>, capacity: usize) {
        if self.len + buffer.len() <= capacity {
            self.len += buffer.len();
            self.buffers.push(buffer);
        }
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        self.pool.in_use.fetch_sub(4 * self.len as u64, Relaxed);
        let capacity = (MAX_CACHED_ELEMENTS / self.pool.free.len()).max(MIN_CACHE_PER_THREAD_ELEMENTS);
        self.pool.free(self.owner).put(core::mem::take(&mut self.data), capacity);
    }
}

impl core::ops::Deref for Workspace<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data[self.from..self.from + self.len]
    }
}

impl core::ops::DerefMut for Workspace<'_> {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.from..self.from + self.len]
    }
}

impl Cpu {
    /// So many numbers, whatever they are.
    pub(crate) fn workspace(&self, len: usize) -> Workspace<'_> {
        self.workspace_pool().acquire(len, ThreadPool::worker_index())
    }

    /// So many zeros.
    pub(crate) fn zeroed_workspace(&self, len: usize) -> Workspace<'_> {
        let mut workspace = self.workspace(len);
        workspace.fill(0.0);
        workspace
    }
}
