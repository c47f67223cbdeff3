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
const PATIENCE: Duration = Duration::from_micros(200);
/// Looks before it lets others have the processor between two of them.
const LOOKS: usize = 256;

thread_local! {
    /// Which helper this thread is.
    static HELPER: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Work that all take part in, each with a number of its own.
type Work<'a> = &'a (dyn Fn(usize) + Sync);

/// Helpers, and the desk where they get their work.
pub struct Threads {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// Held by who asks: one at a time.
    asking: Mutex<()>,
}

struct Shared {
    /// Grows with every call for help, and at the end.
    calls: AtomicUsize,
    /// Helpers that work.
    inside: AtomicUsize,
    desk: Mutex<Desk>,
    /// Sleeping helpers wait for work, and who asks for the last of them.
    called: Condvar,
    left: Condvar,
    patience: Duration,
}

#[derive(Default)]
struct Desk {
    /// Until it is closed, and for how many more helpers.
    open: Option<(Work<'static>, usize)>,
    asleep: usize,
    waiting: bool,
    ended: bool,
    /// What a helper panicked with.
    panic: Option<Box<dyn Any + Send>>,
}

impl Threads {
    /// So many threads in all, one of which is whoever asks; 0: as many as the machine runs at a time.
    pub fn new(threads: usize) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores } else { threads };
        let shared = Arc::new(Shared {
            calls: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            desk: Mutex::default(),
            called: Condvar::new(),
            left: Condvar::new(),
            // Who looks out where there are more threads than processors keeps one from those who work.
            patience: if threads > cores { Duration::ZERO } else { PATIENCE },
        });
        let mut all = Self { shared, helpers: Vec::new(), asking: Mutex::default() };
        for helper in 0..threads - 1 {
            let shared = all.shared.clone();
            let name = format!("gradscale-{helper}");
            match thread::Builder::new().name(name).spawn(move || shared.help(helper)) {
                Ok(helper) => all.helpers.push(helper),
                // WebAssembly has no threads: who asks does all.
                Err(error) if error.kind() == io::ErrorKind::Unsupported => break,
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Threads that share work.
    pub const fn count(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Which of the helpers this thread is, here or elsewhere.
    pub fn helper() -> Option<usize> {
        HELPER.get()
    }

    /// Works on parts `0..count`, each once, on whatever threads come. Where all are at work already, for another thread or
    /// for a part that asks for more, the asking thread does it alone.
    ///
    /// # Panics
    /// As a part does, when no other is worked on any more.
    pub fn each(&self, count: usize, part: impl Fn(usize) + Sync) {
        let helpers = self.helpers.len().min(count.saturating_sub(1));
        let asking = if helpers == 0 { None } else { self.ask() };
        if asking.is_none() {
            return (0..count).for_each(part);
        }
        let shares = Shares::of(count, helpers + 1);
        self.shared.work(helpers, &|thread| shares.work(thread, &part));
    }

    /// The right to ask helpers, if nobody has it.
    fn ask(&self) -> Option<MutexGuard<'_, ()>> {
        match self.asking.try_lock() {
            Ok(asking) => Some(asking),
            Err(TryLockError::Poisoned(asking)) => Some(asking.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Threads").field(&self.count()).finish()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.desk().ended = true;
        self.shared.calls.fetch_add(1, Release);
        self.shared.called.notify_all();
        for helper in self.helpers.drain(..) {
            // It catches what parts panic with.
            let _ = helper.join();
        }
    }
}

/// Parts in shares: neighbours stay on one thread, whose cache has what they have in common, and who has done its own share
/// takes of the others'.
struct Shares {
    /// Of each, the next part and where they end.
    all: Vec<(AtomicUsize, usize)>,
}

impl Shares {
    fn of(parts: usize, shares: usize) -> Self {
        let start = |i: usize| (i as u128 * parts as u128 / shares as u128) as usize;
        Self { all: (0..shares).map(|i| (AtomicUsize::new(start(i)), start(i + 1))).collect() }
    }

    /// Takes parts until there are none.
    fn work(&self, thread: usize, part: &impl Fn(usize)) {
        let (before, own) = self.all.split_at(thread % self.all.len());
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
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does work on this thread, as number 0, and on as many helpers as come while it lasts.
    fn work(&self, helpers: usize, work: Work<'_>) {
        // SAFETY: only the lifetime changes. Helpers call `work` only between taking it from the desk, which counts them as
        // inside, and leaving; `Closing` takes it from the desk and waits for all who are inside, before this function
        // returns or unwinds.
        let lasting = unsafe { core::mem::transmute::<Work<'_>, Work<'static>>(work) };
        let mut desk = self.desk();
        desk.open = Some((lasting, helpers));
        self.calls.fetch_add(1, Release);
        (0..helpers.min(desk.asleep)).for_each(|_| self.called.notify_one());
        drop(desk);
        let closing = Closing(self);
        work(0);
        drop(closing);
        let panic = self.desk().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// The life of a helper.
    fn help(&self, helper: usize) {
        HELPER.set(Some(helper));
        let mut seen = 0;
        while let Some(work) = self.next(&mut seen) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(helper + 1))) {
                self.desk().panic.get_or_insert(panic);
            }
            // What was written is there for who sees the count.
            if self.inside.fetch_sub(1, Release) == 1 && self.desk().waiting {
                self.left.notify_one();
            }
        }
    }

    /// Waits for a call that this helper has not seen, and takes its work; none at the end.
    fn next(&self, seen: &mut usize) -> Option<Work<'static>> {
        loop {
            self.look_out(|| self.calls.load(Acquire) != *seen);
            let mut desk = self.desk();
            while !desk.ended && self.calls.load(Acquire) == *seen {
                desk.asleep += 1;
                desk = self.called.wait(desk).unwrap_or_else(PoisonError::into_inner);
                desk.asleep -= 1;
            }
            if desk.ended {
                return None;
            }
            *seen = self.calls.load(Acquire);
            if let Some((work, room @ 1..)) = &mut desk.open {
                *room -= 1;
                self.inside.fetch_add(1, Relaxed);
                return Some(*work);
            }
        }
    }

    /// Looks whether something has happened, for as long as patience lasts.
    fn look_out(&self, happened: impl Fn() -> bool) -> bool {
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                if happened() {
                    return true;
                }
                core::hint::spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= self.patience {
                return false;
            }
            thread::yield_now();
        }
    }
}

/// Closes the desk, and waits for helpers that are inside.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let Self(shared) = *self;
        shared.desk().open = None;
        let gone = || shared.inside.load(Acquire) == 0;
        if gone() || shared.look_out(gone) {
            return;
        }
        let mut desk = shared.desk();
        desk.waiting = true;
        while !gone() {
            desk = shared.left.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
        desk.waiting = false;
    }
}

// WebAssembly has no threads to test.
#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use std::sync::{Barrier, atomic::AtomicBool};

    /// Works on parts, and says how often each was.
    fn counts(threads: &Threads, count: usize) -> Vec<usize> {
        let times: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        threads.each(count, |i| {
            times[i].fetch_add(1, Relaxed);
        });
        times.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn each_part_is_worked_on_once() {
        for count in [1, 2, 3, 8] {
            let threads = Threads::new(count).unwrap();
            for parts in [0, 1, 2, 3, 7, 64, 1000] {
                assert_eq!(counts(&threads, parts), vec![1; parts], "{count} threads");
            }
            // Helpers that have fallen asleep come too.
            thread::sleep(2 * PATIENCE);
            assert_eq!(counts(&threads, 9), [1; 9]);
        }
        assert!(Threads::new(0).unwrap().count() >= 1);
    }

    /// Two parts that wait for each other end only on two threads.
    #[test]
    fn parts_are_worked_on_side_by_side() {
        let threads = Threads::new(3).unwrap();
        for _ in 0..100 {
            let (all, names) = (Barrier::new(3), Mutex::new(Vec::new()));
            threads.each(3, |_| {
                all.wait();
                names.lock().unwrap().push(Threads::helper());
            });
            let mut names = names.into_inner().unwrap();
            names.sort_unstable();
            assert_eq!(names, [None, Some(0), Some(1)]);
        }
    }

    #[test]
    fn parts_and_other_threads_may_ask() {
        let threads = Threads::new(2).unwrap();
        let all = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        threads.each(5, |_| {
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
        let threads = Threads::new(2).unwrap();
        for helper in [None, Some(0)] {
            let (both, left) = (Barrier::new(2), AtomicBool::new(false));
            let said = catch_unwind(AssertUnwindSafe(|| {
                threads.each(2, |i| {
                    both.wait();
                    assert!(Threads::helper() != helper, "part {i}");
                    thread::sleep(Duration::from_millis(5));
                    left.store(true, Relaxed);
                });
            }));
            assert!(said.unwrap_err().downcast_ref::<String>().unwrap().starts_with("part "));
            assert!(left.into_inner(), "who asked did not wait for the other");
            assert_eq!(counts(&threads, 100), [1; 100]);
        }
    }
}
