//! Copies to the device beside its work: a stream of their own.

use super::staging::Staging;
use cudarc::driver::{
    DriverError,
    result::{event, stream},
    sys,
};
use std::sync::{Mutex, PoisonError};

/// Bytes that are copied at once, at most: before a longer copy goes on, the host waits for what goes before.
const MOST: usize = 64 << 20;

/// The second stream.
#[derive(Debug)]
pub struct UploadStream {
    stream: sys::CUstream,
    /// What copies wait for, on the first stream.
    mark: sys::CUevent,
    /// The last copy's end.
    arrived: sys::CUevent,
    staging: Mutex<Staging>,
}

impl UploadStream {
    /// A stream, in the current context.
    ///
    /// # Errors
    /// The driver's.
    pub fn new() -> Result<Self, DriverError> {
        let event = || event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING);
        Ok(Self {
            stream: stream::create(stream::StreamKind::NonBlocking)?,
            mark: event()?,
            arrived: event()?,
            staging: Mutex::new(Staging::new(MOST)),
        })
    }

    /// Copies wait for all that is enqueued on `first` by now.
    ///
    /// # Safety
    /// The stream lives, and its context is current.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn mark(&self, first: sys::CUstream) -> Result<(), DriverError> {
        // SAFETY: the caller's promise; the event lives as long as this.
        unsafe { event::record(self.mark, first) }
    }

    /// Copies beside the work enqueued on `first` since the mark; what is enqueued there later waits.
    ///
    /// # Safety
    /// Device memory from `dst` on is as long as `src`; the stream lives, and its context is current.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn copy_in(&self, first: sys::CUstream, src: &[u8], dst: u64) -> Result<(), DriverError> {
        if src.is_empty() {
            return Ok(());
        }
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise, and all handles live as long as this.
        unsafe {
            let wait = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
            stream::wait_event(self.stream, self.mark, wait)?;
            let copied = staging
                .copy_in(src, dst, self.stream)
                .and_then(|()| event::record(self.arrived, self.stream))
                .and_then(|()| stream::wait_event(first, self.arrived, wait));
            if copied.is_err() {
                // Nobody waits for this copy: so it ends here.
                stream::synchronize(self.stream).ok();
            }
            copied
        }
    }

    /// Ends it, after the copies under way.
    ///
    /// # Safety
    /// The context that it was made in is current. Nothing is called afterwards.
    pub unsafe fn free(&mut self) {
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all of these were made by this.
        unsafe {
            stream::synchronize(self.stream).ok();
            staging.free();
            event::destroy(self.mark).ok();
            event::destroy(self.arrived).ok();
            stream::destroy(self.stream).ok();
        }
    }
}
