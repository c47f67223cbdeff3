//! Workspaces: f32 memory for the duration of an operator, counted, aligned to a cache line, and cached between
//! operators.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// Size of a cache line in bytes, which is also one vector of 16 f32 lanes.
pub const CACHE_LINE_BYTES: usize = 64;
/// Number of elements that all free lists cache together (32 MiB of f32), in equal shares.
const MAX_CACHED_ELEMENTS: usize = 1 << 23;
/// Number of elements that a free list may cache, however many threads there are: 1 MiB of f32, more than the packed A
/// of a large GEMM (384 × 528 elements).
const MIN_CACHE_PER_THREAD_ELEMENTS: usize = 1 << 18;
/// Granularity in elements to which lengths are rounded up, so that buffers of similar length can replace each other.
const LENGTH_GRANULARITY: usize = 1024;

/// Pool of workspaces: bytes in use, their peak, and cached buffers.
#[derive(Debug)]
pub struct WorkspacePool {
    in_use: AtomicU64,
    peak: AtomicU64,
    /// One list for each worker, so that workers never wait for each other. The last one serves all other threads.
    free: Vec<Mutex<FreeList>>,
}

/// Free list of cached buffers, with the sum of their lengths in elements.
#[derive(Debug, Default)]
struct FreeList {
    buffers: Vec<Vec<f32>>,
    len: usize,
}

/// f32 memory for the duration of an operator; its buffer returns to the pool when dropped.
pub struct Workspace<'a> {
    data: Vec<f32>,
    from: usize,
    len: usize,
    pool: &'a WorkspacePool,
    /// Index of the free list to which the workspace's buffer returns.
    owner: usize,
}

impl WorkspacePool {
    /// Creates a pool with free lists for `workers` workers and one for all other threads.
    pub fn new(workers: usize) -> Self {
        Self {
            in_use: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            free: (0..=workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// Returns the peak of bytes in use since the last call, and resets it.
    pub fn peak(&self) -> u64 {
        self.peak.swap(0, Relaxed)
    }

    /// Returns a workspace of unspecified content for a worker, or for another thread.
    pub fn acquire(&self, len: usize, worker: Option<usize>) -> Workspace<'_> {
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
    /// Removes the smallest buffer of the free list that is large enough.
    fn take(&mut self, padded_len: usize) -> Option<Vec<f32>> {
        let fits = self.buffers.iter().enumerate().filter(|(_, data)| data.len() >= padded_len);
        let buffer = self.buffers.swap_remove(fits.min_by_key(|(_, data)| data.len())?.0);
        self.len -= buffer.len();
        Some(buffer)
    }

    /// Adds a buffer to the free list unless that exceeds the capacity.
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
