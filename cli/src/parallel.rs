//! Work on several threads, whose results come back to one.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

/// Returns the number of cores that this process may use.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` with 0 … count − 1 in this order on several threads, and `receive` on this one with each result as it
/// comes. After `receive` has returned false no more work starts, but results of work that has started still come.
///
/// # Errors
/// The first of `receive`, when all work that has started is done.
pub(crate) fn run<T: Send, E>(
    count: usize, threads: usize, work: impl Fn(usize) -> T + Sync,
    mut receive: impl FnMut(usize, T) -> Result<bool, E>,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            let (next, work, sender) = (&next, &work, sender.clone());
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    // After an error the receiver is gone.
                    if at >= count || sender.send((at, work(at))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (at, result) in receiver {
            if !receive(at, result)? {
                next.store(count, Ordering::Relaxed);
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn all_work_is_done_once_until_it_is_stopped() {
        let mut all = Vec::new();
        let keep = |i, result| {
            all.push((i, result));
            Ok::<_, ()>(true)
        };
        run(100, 3, |i| i * i, keep).expect("no errors");
        all.sort_unstable();
        assert_eq!(all, (0..100).map(|i| (i, i * i)).collect::<Vec<_>>());
        let mut received = 0;
        let stopped = run(
            100,
            1,
            |i| i,
            |i, _| {
                received += 1;
                Ok::<_, ()>(i < 3)
            },
        );
        // The thread may have begun the next before it was told.
        assert!(stopped.is_ok() && (4..=100).contains(&received), "{received}");
        assert_eq!(run(100, 3, |i| i, |i, _| if i < 5 { Ok(true) } else { Err("five or more") }), Err("five or more"));
        assert_eq!(run(0, 3, |i| i, |_, _| Err(())), Ok(()));
    }
}
