//! Timing of work by CUDA events on the device's stream.

use super::Gpu;
use crate::{Error, error::driver_error};
use core::time::Duration;
use cudarc::driver::{result::event, sys};

/// Maximum number of launches between two synchronisations. Each has two events, which cost the host about as much as a
/// launch. This number suffices for a step of most networks, and the cost of the synchronisation is then negligible.
const MAX_TIMED_LAUNCHES: usize = 1024;

/// CUDA events for measuring time, destroyed when dropped.
struct Events(Vec<sys::CUevent>);

impl Events {
    /// Creates `count` CUDA events in the current context.
    fn new(count: usize) -> Result<Self, Error> {
        let mut events = Self(Vec::with_capacity(count));
        for _ in 0..count {
            let new = event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(driver_error("measure time"))?;
            events.0.push(new);
        }
        Ok(events)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        for &one in &self.0 {
            // SAFETY: the event was created here, and nothing else refers to it.
            unsafe { event::destroy(one).ok() };
        }
    }
}

impl Gpu {
    /// Enqueues pieces of work, each between two events, and writes how long the device took from one to the other. Waits.
    ///
    /// Where the device has nothing else to do, that includes the host's time between the first event and the kernel, a few
    /// microseconds.
    ///
    /// # Errors
    /// Those of the work, and the driver's.
    pub(crate) fn time(
        &self, times: &mut [Duration], mut work: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.enter()?;
        let timing = driver_error("measure time");
        let events = Events::new(2 * times.len().min(MAX_TIMED_LAUNCHES))?;
        for (part, times) in times.chunks_mut(MAX_TIMED_LAUNCHES).enumerate() {
            let pairs: Vec<[sys::CUevent; 2]> = events.0.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
            for (i, &[start, end]) in (0..times.len()).zip(&pairs) {
                // SAFETY: the events live as long as this call, the stream as long as the device; nothing is recorded.
                unsafe {
                    self.enter()?;
                    event::record(start, self.stream).map_err(&timing)?;
                    work(part * MAX_TIMED_LAUNCHES + i)?;
                    self.enter()?;
                    event::record(end, self.stream).map_err(&timing)?;
                }
            }
            for (time, [start, end]) in times.iter_mut().zip(pairs) {
                // SAFETY: both were recorded above.
                let milliseconds = unsafe {
                    event::synchronize(end).map_err(&timing)?;
                    event::elapsed(start, end).map_err(&timing)?
                };
                *time = Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3);
            }
        }
        Ok(())
    }
}
