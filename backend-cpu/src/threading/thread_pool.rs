//! Threads that help whoever asks for work.
//!
//! The asking thread begins at once, and helpers join in when they come: one that comes when all is taken is not waited
//! for. A helper without work looks out for more for a while before it sleeps, as a training asks every few microseconds
//! and waking a thread takes tens of them. (rayon, which was here before, lets the asking thread sleep and wakes another
//! for its work: on two threads a step of a GRU took 1.28 times as long, that of a transformer 1.15 times.)

use std::{
    any::Any,
    cell::Cell,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{
            AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a thread looks out before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(200);
/// Looks before it lets others have the processor between two of them.
const SPINS_BEFORE_YIELD: usize = 256;

thread_local! {
    /// Which helper this thread is.
    static WORKER_INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Work that all take part in, each with a number of its own.
type Job<'a> = &'a (dyn Fn(usize) + Sync);

/// Helpers, and the desk where they get their work.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held by who asks: one at a time.
    submit_lock: Mutex<()>,
}

struct Shared {
    /// Grows with every call for help, and at the end.
    epoch: AtomicUsize,
    /// Helpers that work.
    active: AtomicUsize,
    slot: Mutex<JobSlot>,
    /// Sleeping helpers wait for work, and who asks for the last of them.
    job_posted: Condvar,
    job_done: Condvar,
    spin_time: Duration,
}

#[derive(Default)]
struct JobSlot {
    /// Until it is closed, and for how many more helpers.
    current_job: Option<(Job<'static>, usize)>,
    sleeping: usize,
    submitter_waits: bool,
    shutdown: bool,
    /// What a helper panicked with.
    panic: Option<Box<dyn Any + Send>>,
}

impl ThreadPool {
    /// So many threads in all, one of which is whoever asks; 0: as many as the machine runs at a time.
    pub fn new(threads: usize) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores } else { threads };
        let shared = Arc::new(Shared {
            epoch: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            slot: Mutex::default(),
            job_posted: Condvar::new(),
            job_done: Condvar::new(),
            // Who looks out where there are more threads than processors keeps one from those who work.
            spin_time: if threads > cores { Duration::ZERO } else { SPIN_TIME },
        });
        let mut pool = Self { shared, workers: Vec::new(), submit_lock: Mutex::default() };
        for worker in 0..threads - 1 {
            let shared = pool.shared.clone();
            let name = format!("gradscale-{worker}");
            match thread::Builder::new().name(name).spawn(move || shared.worker_loop(worker)) {
                Ok(worker) => pool.workers.push(worker),
                // WebAssembly has no threads: who asks does all.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pool)
    }

    /// Threads that share work.
    pub const fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Which of the helpers this thread is, here or elsewhere.
    pub fn worker_index() -> Option<usize> {
        WORKER_INDEX.get()
    }

    /// Works on parts `0..count`, each once, on whatever threads come. Where all are at work already, for another thread or
    /// for a part that asks for more, the asking thread does it alone.
    ///
    /// # Panics
    /// As a part does, when no other is worked on any more.
    pub fn for_each_index(&self, count: usize, part: impl Fn(usize) + Sync) {
        let workers = self.workers.len().min(count.saturating_sub(1));
        let submit_lock = if workers == 0 { None } else { self.try_submit() };
        if submit_lock.is_none() {
            return (0..count).for_each(part);
        }
        let ranges = IndexRanges::new(count, workers + 1);
        self.shared.run_job(workers, &|thread| ranges.run_from(thread, &part));
    }

    /// The right to ask helpers, if nobody has it.
    fn try_submit(&self) -> Option<MutexGuard<'_, ()>> {
        match self.submit_lock.try_lock() {
            Ok(submit_lock) => Some(submit_lock),
            Err(TryLockError::Poisoned(submit_lock)) => Some(submit_lock.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Threads").field(&self.count()).finish()
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.lock_slot().shutdown = true;
        self.shared.epoch.fetch_add(1, Release);
        self.shared.job_posted.notify_all();
        for worker in self.workers.drain(..) {
            // It catches what parts panic with.
            let _ = worker.join();
        }
    }
}

/// Parts in shares: neighbours stay on one thread, whose cache has what they have in common, and who has done its own share
/// takes of the others'.
struct IndexRanges {
    /// Of each, the next part and where they end.
    ranges: Vec<(AtomicUsize, usize)>,
}

impl IndexRanges {
    fn new(parts: usize, ranges: usize) -> Self {
        let start = |i: usize| (i as u128 * parts as u128 / ranges as u128) as usize;
        Self { ranges: (0..ranges).map(|i| (AtomicUsize::new(start(i)), start(i + 1))).collect() }
    }

    /// Takes parts until there are none.
    fn run_from(&self, thread: usize, part: &impl Fn(usize)) {
        let (before, own) = self.ranges.split_at(thread % self.ranges.len());
        for (next, end) in own.iter().chain(before) {
            loop {
                let i = next.fetch_add(1, Relaxed);
                if i >= *end {
                    break;
                }
                part(i);
            }
        }
    }
}

impl Shared {
    fn lock_slot(&self) -> MutexGuard<'_, JobSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does work on this thread, as number 0, and on as many helpers as come while it lasts.
    fn run_job(&self, workers: usize, work: Job<'_>) {
        // SAFETY: only the lifetime changes. Helpers call `work` only between taking it from the slot, which counts them as
        // inside, and leaving; `JobGuard` takes it from the slot and waits for all who are inside, before this function
        // returns or unwinds.
        let erased = unsafe { core::mem::transmute::<Job<'_>, Job<'static>>(work) };
        let mut slot = self.lock_slot();
        slot.current_job = Some((erased, workers));
        self.epoch.fetch_add(1, Release);
        (0..workers.min(slot.sleeping)).for_each(|_| self.job_posted.notify_one());
        drop(slot);
        let guard = JobGuard(self);
        work(0);
        drop(guard);
        let panic = self.lock_slot().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// The life of a helper.
    fn worker_loop(&self, worker: usize) {
        WORKER_INDEX.set(Some(worker));
        let mut last_epoch = 0;
        while let Some(work) = self.next_job(&mut last_epoch) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(worker + 1))) {
                self.lock_slot().panic.get_or_insert(panic);
            }
            // What was written is there for who sees the count.
            if self.active.fetch_sub(1, Release) == 1 && self.lock_slot().submitter_waits {
                self.job_done.notify_one();
            }
        }
    }

    /// Waits for a call that this helper has not seen, and takes its work; none at the end.
    fn next_job(&self, last_epoch: &mut usize) -> Option<Job<'static>> {
        loop {
            self.spin_until(|| self.epoch.load(Acquire) != *last_epoch);
            let mut slot = self.lock_slot();
            while !slot.shutdown && self.epoch.load(Acquire) == *last_epoch {
                slot.sleeping += 1;
                slot = self.job_posted.wait(slot).unwrap_or_else(PoisonError::into_inner);
                slot.sleeping -= 1;
            }
            if slot.shutdown {
                return None;
            }
            *last_epoch = self.epoch.load(Acquire);
            if let Some((work, capacity @ 1..)) = &mut slot.current_job {
                *capacity -= 1;
                self.active.fetch_add(1, Relaxed);
                return Some(*work);
            }
        }
    }

    /// Looks whether something has happened, for as long as patience lasts.
    fn spin_until(&self, is_ready: impl Fn() -> bool) -> bool {
        let mut started = None;
        loop {
            for _ in 0..SPINS_BEFORE_YIELD {
                if is_ready() {
                    return true;
                }
                core::hint::spin_loop();
            }
            if started.get_or_insert_with(Instant::now).elapsed() >= self.spin_time {
                return false;
            }
            thread::yield_now();
        }
    }
}

/// Closes the desk, and waits for helpers that are inside.
struct JobGuard<'a>(&'a Shared);

impl Drop for JobGuard<'_> {
    fn drop(&mut self) {
        let Self(shared) = *self;
        shared.lock_slot().current_job = None;
        let all_done = || shared.active.load(Acquire) == 0;
        if all_done() || shared.spin_until(all_done) {
            return;
        }
        let mut slot = shared.lock_slot();
        slot.submitter_waits = true;
        while !all_done() {
            slot = shared.job_done.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        slot.submitter_waits = false;
    }
}

// WebAssembly has no threads to test.
#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use std::sync::{Barrier, atomic::AtomicBool};

    /// Works on parts, and says how often each was.
    fn counts(threads: &ThreadPool, count: usize) -> Vec<usize> {
        let times: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        threads.for_each_index(count, |i| {
            times[i].fetch_add(1, Relaxed);
        });
        times.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn each_part_is_worked_on_once() {
        for count in [1, 2, 3, 8] {
            let threads = ThreadPool::new(count).unwrap();
            for parts in [0, 1, 2, 3, 7, 64, 1000] {
                assert_eq!(counts(&threads, parts), vec![1; parts], "{count} threads");
            }
            // Helpers that have fallen asleep come too.
            thread::sleep(2 * SPIN_TIME);
            assert_eq!(counts(&threads, 9), [1; 9]);
        }
        assert!(ThreadPool::new(0).unwrap().count() >= 1);
    }

    /// Two parts that wait for each other end only on two threads.
    #[test]
    fn parts_are_worked_on_side_by_side() {
        let threads = ThreadPool::new(3).unwrap();
        for _ in 0..100 {
            let (all, names) = (Barrier::new(3), Mutex::new(Vec::new()));
            threads.for_each_index(3, |_| {
                all.wait();
                names.lock().unwrap().push(ThreadPool::worker_index());
            });
            let mut names = names.into_inner().unwrap();
            names.sort_unstable();
            assert_eq!(names, [None, Some(0), Some(1)]);
        }
    }

    #[test]
    fn parts_and_other_threads_may_ask() {
        let threads = ThreadPool::new(2).unwrap();
        let all = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        threads.for_each_index(5, |_| {
                            assert_eq!(counts(&threads, 3), [1; 3]);
                            all.fetch_add(1, Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(all.into_inner(), 4 * 50 * 5);
    }

    /// Wherever it happens; and others are still at work on what they hold while one panics.
    #[test]
    fn a_panic_reaches_who_asked_and_threads_go_on() {
        let threads = ThreadPool::new(2).unwrap();
        for worker in [None, Some(0)] {
            let (barrier, job_done) = (Barrier::new(2), AtomicBool::new(false));
            let said = catch_unwind(AssertUnwindSafe(|| {
                threads.for_each_index(2, |i| {
                    barrier.wait();
                    assert!(ThreadPool::worker_index() != worker, "part {i}");
                    thread::sleep(Duration::from_millis(5));
                    job_done.store(true, Relaxed);
                });
            }));
            assert!(said.unwrap_err().downcast_ref::<String>().unwrap().starts_with("part "));
            assert!(job_done.into_inner(), "who asked did not wait for the other");
            assert_eq!(counts(&threads, 100), [1; 100]);
        }
    }
}
